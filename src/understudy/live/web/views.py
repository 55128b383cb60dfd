"""The views of studies that the page shows, as JSON: a verdict, numbers, and fragments of HTML."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from understudy.formatting import count, counted, number, plain
from understudy.live.live_study import LiveStudy
from understudy.live.service import Service
from understudy.live.spec import UNIT, VECTOR, StudySpec
from understudy.live.store.records import moment
from understudy.live.web.study_json import StudyNow, describe, isoformat
from understudy.logs.evaluation.outcomes import VerdictKind, VerdictOutcome
from understudy.logs.schema import LOGGED
from understudy.report import Report
from understudy.report.render import environment, sections
from understudy.report.tables import TextCell, TextColumn, TextTable
from understudy.report.words import BEHAVIORS, Mark

Kind = VerdictKind | Literal["waiting", "warming up", "stopped"]
WAITING, WARMING_UP = Mark("…", "Waiting", "open"), Mark("…", "Warming up", "open")
STOPPED = Mark("!", "Stopped", "bad")
MEANINGS = {
    "conflict": "contradicts what was sent before about the same decision",
    "malformed": "was not an event of this study; counted since the service started",
    "late": "a reward that came after its wait was over",
    "unknown decision": "a reward for an id that no decision has",
    "incomplete": "the first event of a unit, without the propensity or the context of a decision",
}
REJECTED = (
    TextColumn("reason", words=True),
    TextColumn("what it means", words=True),
    TextColumn("events"),
)
SECTIONS = ("gain", "bounds", "care", "certificate", "policy", "experts", "coverage")
DIGITS = 8  # of a wait in seconds: a year has so many
RARE, FEW = 0.1, 10.0  # events a second: hardly any; so many that a fraction says nothing


@dataclass(frozen=True)
class StudyView:
    """A study at one moment.

    It has a report once something was learned, by the study or by the policy.json that it
    continues (from `base_rows`). Nothing is learned past the oldest decision without a reward,
    which is waited for until `blocked_until`.
    """

    now: StudyNow
    report: Report | None = None
    promoted_since: datetime | None = None
    blocked_until: datetime | None = None
    base_rows: int = 0

    @staticmethod
    def of(service: Service, study: LiveStudy) -> StudyView:
        """Look at a study; the state may be another by now."""
        state, due = study.state, study.next_deadline()
        return StudyView(
            describe(study, state, service.writer.time()),
            None if state.result is None else state.result.report,
            service.promoted_since(study, state),
            None if due is None else moment(due),
            0 if state.base_study is None else state.base_study.rounds,
        )

    def _verdict(self) -> tuple[Kind, Mark, str]:
        """Say what to do about the study now: the kind, its mark, and why."""
        now, report = self.now, self.report
        if now.fault is not None:
            return "stopped", STOPPED, f"{now.fault}."
        if now.warmup_left:
            prepare = "prepares" if now.warmup_left == 1 else "prepare"
            left = counted(now.warmup_left, "more decision")
            return "warming up", WARMING_UP, f"{left} {prepare} the contexts."
        if report is None:
            return "waiting", WAITING, "no reward is known yet."
        since = self.promoted_since
        if since is None or report.outcome not in (
            VerdictOutcome.PROMOTE,
            VerdictOutcome.NO_LONGER_CERTAIN,
        ):
            return report.verdict_kind, report.mark, report.said
        when = f"A gain was first certain on {_day(since)}."
        return report.verdict_kind, report.mark, f"{report.said} {when}"

    def summary(self) -> dict[str, Any]:
        """The study in a list of them."""
        now = self.now
        kind, mark, why = self._verdict()
        rate = _rate(now.events_per_second)
        return {
            "study": now.study.name,
            "archived": now.archived_at is not None,
            "kind": kind,
            "style": mark.style,
            "sign": mark.sign,
            "verdict": plain(f"{mark.word}: {why}"),
            "word": mark.word,
            "why": plain(why),
            "numbers": f"{counted(now.decisions, 'decision')} · {rate} events a second",
        }

    def page(self) -> dict[str, Any]:
        """All that the page of the study shows; its fragments are HTML that may be trusted."""
        now, report = self.now, self.report
        where = f"at /v1/studies/{now.study.name}/coverage"
        drawn = {} if report is None else sections(report, where)
        facts = self._settings() | dict(() if report is None else report.facts)
        macros: Any = environment("understudy.live.web").get_template("parts.html").module
        fragments = {
            **{name: drawn.get(name, "") for name in SECTIONS},
            "events": macros.events(self._events(), self._notes()),
            "rejected": macros.rejected(self._rejected()),
            "settings": macros.settings(facts.items()),
        }
        return {
            **self.summary(),
            "counters": {
                **now.model_dump(exclude={"study"}),
                "archived": now.archived_at is not None,
                "promoted_since": isoformat(self.promoted_since),
                "blocked_until": isoformat(self.blocked_until),
            },
            "example": None if now.decisions or now.archived_at else _example(now.study),
            "fragments": {name: str(text).strip() for name, text in fragments.items()},
        }

    def _settings(self) -> dict[str, str]:
        spec = self.now.study
        default = number(spec.expired_reward)
        found = {
            "Actions": count(len(spec.labels)),
            "Behavior": BEHAVIORS[spec.propensity_source],
            "Rewards": f"{number(spec.scale.low)} to {number(spec.scale.high)}",
            "Wait for a reward": f"{number(spec.reward_wait, DIGITS)} seconds, then {default}",
        }
        if spec.context is not None:
            kinds = (f"{name} ({kind})" for name, kind in spec.context.items())
            found["Contexts"] = ", ".join(kinds)
        if spec.propensity_vectors:
            found["Propensities of all actions"] = "with every decision"
        if spec.least_propensity is not None:
            found["Least propensity"] = number(spec.least_propensity)
        if spec.unit_rows is not None:
            found["A decision"] = f"is a unit, with its first {counted(spec.unit_rows, 'event')}"
        if self.base_rows:
            rows = counted(self.base_rows, "row")
            found["Goes on from"] = f"a policy that was learned from {rows}"
        return found

    def _events(self) -> dict[str, str]:
        now, units = self.now, {}
        if now.study.unit_rows is not None:
            units = {"later events of a unit": count(now.later_events)}
        return {
            "events a second": _rate(now.events_per_second),
            "decisions": count(now.decisions),
            "learned from": count(now.learned),
            "wait for their turn": count(now.waiting),
            "had the default reward": count(now.expired),
            "sent again, counted once": count(now.known),
            **units,
        }

    def _notes(self) -> list[str]:
        notes = (self._blocked(), self._changing(), self._contradicting())
        return [note for note in notes if note]

    def _changing(self) -> str:
        """A warning about units that did not keep their action."""
        now = self.now
        if not (now.changing_units or now.later_changes):
            return ""
        found = []
        if now.changing_units:
            units = counted(now.changing_units, "unit")
            found.append(
                f"{units} changed the action among the events that count, so that the reward of "
                "each counts as unknown"
            )
        if now.later_changes:
            events = counted(now.later_changes, "later event")
            found.append(f"{events} had another action than the unit")
        return f"{', and '.join(found)}. Check how units get their action: they should keep it."

    def _contradicting(self) -> str:
        """A warning about decisions that the declared least propensity does not allow."""
        found, least = self.now.contradictions, self.now.study.least_propensity
        if not found or least is None:
            return ""
        return (
            f"The propensities of {counted(found, 'decision')} contradict the declared least one, "
            f"{number(least)}. Create the study again with a smaller one, or none."
        )

    def _blocked(self) -> str:
        until = self.blocked_until
        if until is None or not self.now.waiting or self.now.fault is not None:
            return ""
        return (
            "Decisions are learned from in their order: the oldest one without a reward is waited "
            f"for until {_day(until)}, {until.astimezone(UTC):%H:%M:%S} UTC."
        )

    def _rejected(self) -> TextTable:
        """All events that were not taken, by reason, the most frequent first."""
        rows = [
            (TextCell(reason), TextCell(MEANINGS.get(reason, "–")), TextCell(count(events), events))
            for reason, events in sorted(self.now.refused.items(), key=lambda item: -item[1])
        ]
        return TextTable("Events that were not taken", REJECTED, rows)


def _example(spec: StudySpec) -> dict[str, object]:
    """An event as one would be sent."""
    event: dict[str, object] = {"id": "decision-1", "action": spec.labels.labels[0]}
    if spec.propensity_vectors:
        event[VECTOR] = dict.fromkeys(spec.labels.texts, 1.0 / len(spec.labels))
    elif spec.propensity_source == LOGGED:
        event["propensity"] = 1.0 / len(spec.labels)
    if spec.unit_rows is not None:
        event[UNIT] = "user-1"
    if spec.context is not None:
        event["context"] = {
            name: 1.0 if kind == "number" else "a" for name, kind in spec.context.items()
        }
    return {**event, "reward": spec.scale.high}


def _day(time: datetime) -> str:
    day = time.astimezone(UTC)
    return f"{day.day} {day:%B %Y}"


def _rate(events_per_second: float) -> str:
    if not events_per_second or events_per_second >= FEW:
        return count(round(events_per_second))
    return f"{events_per_second:.1f}" if events_per_second >= RARE else f"< {RARE}"


class StudyViews:
    """The views of all studies of a service.

    The event loop calls `names` and `version`, often. `summary` and `view` are slow: another
    thread calls them.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def names(self) -> list[str]:
        """All studies, archived ones too."""
        return list(self._service.studies)

    def version(self, name: str) -> int:
        """Version of the view; changes with every update."""
        study = self._service.study(name)
        rate = study.rate.at(self._service.writer.time())
        return hash((study.version, study.malformed, study.known, study.fault, rate))

    def summary(self, name: str) -> dict[str, Any]:
        """A study in a list of them."""
        return StudyView.of(self._service, self._service.study(name)).summary()

    def view(self, name: str) -> dict[str, Any]:
        """All about a study."""
        return StudyView.of(self._service, self._service.study(name)).page()
