"""Views of studies for the page."""

from __future__ import annotations

from typing import Any

from understudy.formatting import counted, number
from understudy.live.live_study import LiveStudy
from understudy.live.service import Service
from understudy.live.spec import StudySpec
from understudy.live.state import StudyState
from understudy.live.store.records import moment
from understudy.live.web.study_json import describe
from understudy.live.web.views import About, Counters, show, summarize
from understudy.logs.schema import LOGGED
from understudy.report import Report
from understudy.report.words import BEHAVIORS


class StudyViews:
    """The `ViewSource` of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def names(self) -> list[str]:
        """All studies, archived ones too."""
        return list(self._service.studies)

    def version(self, name: str) -> int:
        """Version of the view; changes with every update."""
        study = self._service.studies.get(name)
        if study is None:
            return 0
        rate = study.rate.at(self._service.writer.time())
        return hash((study.version, study.malformed, study.known, study.fault, rate))

    def summary(self, name: str) -> dict[str, Any]:
        """A study in a list of them."""
        study = self._service.study(name)
        state = study.state
        return summarize(name, _report(state), self._counters(study, state))

    def view(self, name: str) -> dict[str, Any]:
        """All about a study."""
        study = self._service.study(name)
        state = study.state
        about = About(name=name, settings=_settings(study), example=_example(study.spec))
        return show(about, _report(state), self._counters(study, state))

    def _counters(self, study: LiveStudy, state: StudyState) -> Counters:
        now = describe(study, state, self._service.writer.time())
        due = study.next_deadline()
        return Counters(
            decisions=now["decisions"],
            learned=state.rounds,
            waiting=now["waiting"],
            expired=now["expired"],
            known=now["known"],
            refused=now["refused"],
            events_per_second=now["events_per_second"],
            promoted_since=self._service.promoted_since(study, state),
            warmup_left=now["warmup_left"] or None,
            archived=now["archived_at"] is not None,
            blocked_until=None if due is None else moment(due),
            fault=study.fault,
        )


def _report(state: StudyState) -> Report | None:
    result = state.result
    return None if result is None else result.report


def _settings(study: LiveStudy) -> list[tuple[str, str]]:
    spec = study.spec
    found = [
        ("Actions", f"{len(spec.labels):,}"),
        ("Propensities", BEHAVIORS[spec.propensity_source]),
        ("Rewards", f"{number(spec.scale.low)} to {number(spec.scale.high)}"),
        ("Wait for a reward", f"{spec.reward_wait:g} seconds, then {number(spec.expired_reward)}"),
    ]
    if spec.context is not None:
        found.append(("Contexts", ", ".join(spec.context)))
    base = study.state.base_study
    if base is not None and base.rounds:
        rows = counted(base.rounds, "row")
        found.append(("Goes on from", f"a policy that was learned from {rows}"))
    return found


def _example(spec: StudySpec) -> dict[str, object]:
    """An event as one would be sent."""
    event: dict[str, object] = {"id": "decision-1", "action": spec.labels.labels[0]}
    if spec.propensity_source == LOGGED:
        event["propensity"] = 1.0 / len(spec.labels)
    if spec.context is not None:
        event["context"] = {
            name: 1.0 if kind == "number" else "a" for name, kind in spec.context.items()
        }
    return {**event, "reward": spec.scale.high}
