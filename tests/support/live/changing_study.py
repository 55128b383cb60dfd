"""A study that changes whenever it is looked at, behind the service's own routes and views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.asgi import Answer, ask
from tests.support.live.single_study import Event, SingleStudy
from understudy.live.live_study import LiveStudy
from understudy.live.service import Service
from understudy.live.state import StudyState
from understudy.live.web.app import make_app
from understudy.live.web.views import StudyViews

__all__ = ["asked", "learn_one", "shown", "watched"]


def learn_one(single: SingleStudy) -> None:
    """One more decision; of the two actions, the second earns a reward."""
    number = single.study.next_seq
    action, reward = ("a", 0.0) if number % 2 else ("b", 1.0)
    single.send(Event(id=str(number), action=action, propensity=0.5, reward=reward))


class ChangingStudy:
    """A study that has learned from one more decision whenever somebody looks at its state."""

    def __init__(self, single: SingleStudy) -> None:
        self._single = single

    @property
    def state(self) -> StudyState:
        learn_one(self._single)
        return self._single.study.state

    def policy_json(self, show: Any) -> bytes:
        return LiveStudy.policy_json(self, show)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._single.study, name)


def asked(single: SingleStudy) -> Callable[..., Any]:
    """What asks a service about a study that changes."""
    service = Service(str(single.path))
    service.writer.studies = {"study": ChangingStudy(single)}  # type: ignore[dict-item]
    app = make_app(service)

    def answer(path: str, method: str = "GET") -> Any:
        found = ask(app, method, f"/v1/studies/study{path}")
        assert found.status == 200, found.body
        return found.json

    return answer


def shown(single: SingleStudy) -> tuple[StudyViews, Callable[[str], Answer]]:
    """The views of a study, and a function that requests a path of its service."""
    service = Service(str(single.path))
    service.writer.studies = {"study": single.study}
    app = make_app(service)
    return StudyViews(service), lambda path: ask(app, "GET", path)


def watched(single: SingleStudy) -> dict[str, Any]:
    """The numbers of the page."""
    service = Service(str(single.path))
    service.writer.studies = {"study": ChangingStudy(single)}  # type: ignore[dict-item]
    counters: dict[str, Any] = StudyViews(service).view("study")["counters"]
    return counters
