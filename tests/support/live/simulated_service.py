"""A service to look at pages with: real reports about simulated decisions, and no store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from understudy.live.web import page
from understudy.live.web.auth import AuthMiddleware
from understudy.live.web.streams import Streams
from understudy.live.web.tokens import TokenRegistry
from understudy.live.web.views import About, Counters, show, summarize
from understudy.report import Report

__all__ = ["SimulatedService", "SimulatedStudy", "in_middleware", "serving_simulated"]

PROMOTED = datetime(2026, 5, 3, 9, 30, tzinfo=UTC)


def in_middleware(app: ASGIApp) -> AuthMiddleware:
    """As the service has it: the middleware gives every answer its headers."""
    return AuthMiddleware(
        app,
        TokenRegistry(list),
        loopback_only=True,
        registry=CollectorRegistry(),
        operations={},
    )


@dataclass
class SimulatedStudy:
    """What is shown of one study, and a number that goes up whenever that changes."""

    about: About
    actions: Sequence[str] = ()
    report: Report | None = None
    counters: Counters = field(default_factory=Counters)
    version: int = 0

    def change(self, report: Report | None = None, **counted: Any) -> None:
        """Show something else."""
        self.report = self.report if report is None else report
        self.counters = replace(self.counters, **counted)
        self.version += 1


class SimulatedService:
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
        settings = [("Actions", ", ".join(actions)), ("Behavior", "propensities as logged")]
        example = {"id": "1", "action": actions[0], "propensity": 0.5, "reward": 1}
        about = About(name=name, settings=settings, example=example)
        self.studies[name] = SimulatedStudy(about, actions)
        return self.studies[name]

    def play(self, name: str, decisions: int) -> None:
        """Let production act so often, in all; the last action earns the most, and is rare."""
        study = self.studies[name]
        rng = np.random.default_rng(decisions)
        n_actions = len(study.actions)
        pi_b = np.arange(n_actions, 0, -1) / np.arange(1, n_actions + 1).sum()
        chosen = rng.choice(n_actions, decisions, p=pi_b)
        means = np.linspace(0.15, 0.6, n_actions)
        frame = pl.DataFrame(
            {
                "action": [study.actions[i] for i in chosen],
                "reward": (rng.random(decisions) < means[chosen]).astype(float),
                "propensity": pi_b[chosen],
            }
        )
        report = logs.learn(frame, actions=list(study.actions)).report
        study.change(
            report,
            decisions=decisions,
            learned=decisions,
            events_per_second=decisions / 8,
            promoted_since=PROMOTED if report.verdict_kind == "promote" else None,
        )

    def names(self) -> list[str]:
        return list(self.studies)

    def version(self, name: str) -> int:
        return self.studies[name].version

    def summary(self, name: str) -> dict[str, Any]:
        study = self.studies[name]
        return summarize(name, study.report, study.counters)

    def view(self, name: str) -> dict[str, Any]:
        study = self.studies[name]
        return show(study.about, study.report, study.counters)

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
        self.studies[request.path_params["study"]].change(archived=True)
        return JSONResponse({})


async def _docs(_: Request) -> Response:
    return PlainTextResponse("operations")


@contextlib.contextmanager
def serving_simulated(service: SimulatedService) -> Iterator[SimulatedService]:
    """The service on a free port of this machine, until the test is over."""
    with serving(lambda: service.app, service.stop.set) as service.url:
        yield service
