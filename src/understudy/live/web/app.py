"""The service as an ASGI application: operations, page, health and metrics, in the middleware."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from understudy.live.service import Service
from understudy.live.spec import SECOND
from understudy.live.web import page
from understudy.live.web.answers import answer, refuse
from understudy.live.web.docs import BASE, docs_page
from understudy.live.web.handlers import Handlers
from understudy.live.web.middleware import AuthMiddleware
from understudy.live.web.openapi import Handler, document
from understudy.live.web.operations import operations
from understudy.live.web.router import OperationRouter, not_found
from understudy.live.web.streams import Streams
from understudy.live.web.study_views import StudyViews
from understudy.live.web.tokens import TokenRegistry

HOST = re.compile(r"([a-z0-9][a-z0-9.-]{0,252}|\[[0-9a-f:]+\])(:[0-9]{1,5})?", re.IGNORECASE)


def make_app(service: Service, *, loopback_only: bool = True) -> ASGIApp:
    """What uvicorn serves. It starts the service, and stops it."""
    registry = CollectorRegistry()
    registry.register(StudyMetrics(service))

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    offered = operations(Handlers(service), Streams(StudyViews(service), service.stopped))
    described = document(offered, version("understudy"))
    # A bare router: the middleware around it answers all errors.
    router = Router(
        routes=[
            *page.routes(),
            Route("/docs", _docs(described, service)),
            Route("/openapi.json", _static(answer(200, described))),
            Route("/healthz", _static(answer(200, {"status": "alive"}))),
            Route("/readyz", _ready(service)),
            Route("/metrics", _metrics(registry)),
        ],
        default=not_found,
        lifespan=lifespan,
    )
    app = OperationRouter(offered, otherwise=router)
    return AuthMiddleware(
        app, TokenRegistry(service.tokens), loopback_only=loopback_only, registry=registry
    )


def _static(response: Response) -> Handler:
    async def endpoint(_: Request) -> Response:
        return response

    return endpoint


def _docs(described: Mapping[str, Any], service: Service) -> Handler:
    """The page of operations, whose examples use the host that the page was requested from."""

    @lru_cache(maxsize=8)
    def page_for(base: str, tokens: bool) -> HTMLResponse:
        return HTMLResponse(docs_page(described, base, tokens=tokens))

    async def endpoint(request: Request) -> Response:
        host = request.headers.get("host", "")
        base = f"{request.url.scheme}://{host}" if HOST.fullmatch(host) else BASE
        return page_for(base, bool(service.tokens()))

    return endpoint


def _ready(service: Service) -> Handler:
    """Whether events would be taken now."""

    async def endpoint(_: Request) -> Response:
        if (reason := service.writer.unavailable) is not None:
            return refuse(503, "store unavailable", reason)
        return answer(200, {"status": "ready"})

    return endpoint


def _metrics(registry: CollectorRegistry) -> Handler:
    async def endpoint(_: Request) -> Response:
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    return endpoint


class StudyMetrics(Collector):
    """What operators watch of every study, read when they ask."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        writer = self._service.writer
        decisions = CounterMetricFamily(
            "understudy_decisions", "Decisions on disk.", labels=["study"]
        )
        learned = CounterMetricFamily("understudy_folded", "Decisions folded.", labels=["study"])
        expired = CounterMetricFamily(
            "understudy_expired", "Decisions that got the default reward.", labels=["study"]
        )
        refused = CounterMetricFamily(
            "understudy_refused", "Events that were not taken.", labels=["study", "reason"]
        )
        for name, study in writer.studies.items():
            decisions.add_metric([name], study.next_seq - 1)
            learned.add_metric([name], study.state.seq)
            expired.add_metric([name], study.state.expired)
            for reason, count in study.refusals().items():
                refused.add_metric([name, reason], count)
        yield from (decisions, learned, expired, refused)
        yield CounterMetricFamily("understudy_commits", "Groups on disk.", value=writer.commits)
        usable = float(writer.unavailable is None)
        yield GaugeMetricFamily("understudy_store_usable", "1 if the store is.", value=usable)
        ahead = writer.clock.running.ahead() / SECOND
        about = "Seconds by which the service's clock is ahead of the machine's."
        yield GaugeMetricFamily("understudy_clock_ahead_seconds", about, value=ahead)

    def describe(self) -> list[Metric]:
        """Nothing ahead of time: there are no studies before the start."""
        return []
