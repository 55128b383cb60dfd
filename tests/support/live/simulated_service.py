"""A service to look at pages with: real reports about simulated decisions, and no store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.support.live.local_server import serving
from understudy import logs
from understudy.live.spec import StudySpec
from understudy.live.web import page
from understudy.live.web.auth import Authorization
from understudy.live.web.middleware import RequestMiddleware
from understudy.live.web.streams import Streams
from understudy.live.web.study_json import StudyNow
from understudy.live.web.tokens import TokenRegistry
from understudy.live.web.views import StudyView, StudyViews
from understudy.report import Report

__all__ = ["SimulatedService", "SimulatedStudy", "in_middleware", "serving_simulated", "viewed"]

PROMOTED = datetime(2026, 5, 3, 9, 30, tzinfo=UTC)


def in_middleware(app: ASGIApp) -> RequestMiddleware:
    """As the service has it: the middleware gives every answer its headers."""
    own = Authorization(TokenRegistry(list), loopback_only=True)
    return RequestMiddleware(app, own, registry=CollectorRegistry(), operations={})


def viewed(
    report: Report | None = None,
    *,
    name: str = "router",
    actions: Sequence[str] = ("small", "medium", "large"),
    **counts: Any,
) -> StudyView:
    """A study with these counts; all others are zero."""
    now: dict[str, Any] = dict.fromkeys(StudyNow.model_fields, 0)
    now |= {"created_at": PROMOTED.isoformat(), "archived_at": None, "refused": {}, "fault": None}
    spec = StudySpec(name=name, actions=list(actions))
    return StudyView(StudyNow(**now | counts | {"study": spec}), report)


@dataclass
class SimulatedStudy:
    """The view of one study, and a number that goes up whenever it changes."""

    shown: StudyView
    version: int = 0

    def change(self, **counts: Any) -> None:
        """Show something else."""
        self.show(replace(self.shown, now=self.shown.now.model_copy(update=counts)))

    def show(self, view: StudyView) -> None:
        """Show another view."""
        self.shown = view
        self.version += 1


class SimulatedService(StudyViews):
    """Studies that a test can play on; what pages watch, and what they ask for."""

    def __init__(self, interval: float = 1.0) -> None:
        self.url = ""
        self.studies: dict[str, SimulatedStudy] = {}
        self.stop = asyncio.Event()
        self._streams = Streams(self, self.stop, interval)
        simulated = Starlette(
            routes=[
                *page.routes(),
                Route("/docs", _docs),
                Route("/v1/studies", self._create, methods=["POST"]),
                Route("/v1/studies/{study}/archive", self._archive, methods=["POST"]),
                Route("/v1/studies/{study}/live", self._watch),
                Route("/v1/live", self._watch),
            ]
        )
        self.app = in_middleware(simulated)

    def add(
        self, name: str, actions: Sequence[str] = ("small", "medium", "large")
    ) -> SimulatedStudy:
        """A study without any event."""
        self.studies[name] = SimulatedStudy(viewed(name=name, actions=actions))
        return self.studies[name]

    def play(self, name: str, decisions: int) -> None:
        """Let production act so often, in all; the last action earns the most, and is rare."""
        study = self.studies[name]
        rng = np.random.default_rng(decisions)
        actions = [str(action) for action in study.shown.now.study.actions]
        n_actions = len(actions)
        pi_b = np.arange(n_actions, 0, -1) / np.arange(1, n_actions + 1).sum()
        chosen = rng.choice(n_actions, decisions, p=pi_b)
        means = np.linspace(0.15, 0.6, n_actions)
        frame = pl.DataFrame(
            {
                "action": [actions[i] for i in chosen],
                "reward": (rng.random(decisions) < means[chosen]).astype(float),
                "propensity": pi_b[chosen],
            }
        )
        report = logs.learn(frame, actions=actions).report
        counts = {"decisions": decisions, "learned": decisions, "events_per_second": decisions / 8}
        since = PROMOTED if report.verdict_kind == "promote" else None
        view = viewed(report, name=name, actions=actions, **counts)
        study.show(replace(view, promoted_since=since))

    def names(self) -> list[str]:
        return list(self.studies)

    def version(self, name: str) -> int:
        return self.studies[name].version

    def summary(self, name: str) -> dict[str, Any]:
        return self.studies[name].shown.summary()

    def view(self, name: str) -> dict[str, Any]:
        return self.studies[name].shown.page()

    async def _watch(self, request: Request) -> Response:
        name = request.path_params.get("study")
        if name is not None and name not in self.studies:
            return JSONResponse({"error": "unknown study", "message": "none"}, status_code=404)
        return self._streams.respond(request.scope, name)

    async def _create(self, request: Request) -> Response:
        asked = await request.json()
        wrong = {}
        if asked["name"] in self.studies:
            wrong["name"] = "another study has it: choose another"
        if len(asked["actions"]) < 2:
            wrong["actions"] = "name at least two"
        for i, action in enumerate(asked["actions"]):
            if len(action) > 200:
                wrong[f"actions.{i}"] = "it is longer than 200 characters"
        if asked["confidence"] >= 1:
            wrong["confidence"] = "nothing is that sure: below 100"
        if wrong:
            fields = [{"field": name, "message": message} for name, message in wrong.items()]
            refusal = {"error": "invalid", "message": "some fields are wrong", "fields": fields}
            return JSONResponse(refusal, status_code=422)
        self.add(asked["name"], asked["actions"])
        return JSONResponse(asked, status_code=201)

    async def _archive(self, request: Request) -> Response:
        self.studies[request.path_params["study"]].change(archived_at=PROMOTED.isoformat())
        return JSONResponse({})


async def _docs(_: Request) -> Response:
    return PlainTextResponse("operations")


@contextlib.contextmanager
def serving_simulated(service: SimulatedService) -> Iterator[SimulatedService]:
    """The service on a free port of this machine, until the test is over."""
    with serving(lambda: service.app, service.stop.set) as service.url:
        yield service
