"""The service as an ASGI application: operations, page, health and metrics, behind the gate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from understudy.live import page
from understudy.live.answers import answer, refuse
from understudy.live.docs import docs_page
from understudy.live.gate import Gate
from understudy.live.openapi import Handler, document, not_found, routes
from understudy.live.operations import operations
from understudy.live.service import Busy, NoSuchStudy, Service
from understudy.live.streams import Streams
from understudy.live.tokens import Keys
from understudy.live.watching import Watcher

__all__ = ["make_app"]


def make_app(service: Service, *, loopback_only: bool = True) -> ASGIApp:
    """What uvicorn serves. It starts the service, and stops it."""
    registry = CollectorRegistry()
    registry.register(Studies(service))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    offered = operations(Streams(Watcher(service), service.stopped))
    described = document(offered, version("understudy"))
    app = Starlette(
        routes=[
            *routes(offered),
            *page.routes(),
            Route("/docs", _static(HTMLResponse(docs_page(described)))),
            Route("/openapi.json", _static(answer(200, described))),
            Route("/healthz", _static(answer(200, {"status": "alive"}))),
            Route("/readyz", _ready),
            Route("/metrics", _metrics(registry)),
        ],
        exception_handlers={NoSuchStudy: _no_such_study, Busy: _busy},
        lifespan=lifespan,
    )
    app.router.default = not_found
    app.state.service = service
    return Gate(app, Keys(service.tokens), loopback_only=loopback_only, registry=registry)


def _static(response: Response) -> Handler:
    async def endpoint(_: Request) -> Response:
        return response

    return endpoint


async def _ready(request: Request) -> Response:
    """Whether events would be taken now."""
    service: Service = request.app.state.service
    obstacle = service.writer.obstacle
    if obstacle is not None or service.writer.stopping:
        return refuse(503, "store unavailable", obstacle or "the service is shutting down")
    return answer(200, {"status": "ready"})


def _metrics(registry: CollectorRegistry) -> Handler:
    async def endpoint(_: Request) -> Response:
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    return endpoint


async def _no_such_study(_: Request, error: Exception) -> Response:
    return refuse(404, "unknown study", str(error))


async def _busy(_: Request, error: Exception) -> Response:
    assert isinstance(error, Busy)
    return refuse(409, error.error, str(error))


class Studies(Collector):
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
            learned.add_metric([name], study.standing.seq)
            expired.add_metric([name], study.standing.expired)
            for reason, count in study.refusals().items():
                refused.add_metric([name, reason], count)
        yield from (decisions, learned, expired, refused)
        yield CounterMetricFamily("understudy_commits", "Groups on disk.", value=writer.commits)
        usable = float(writer.obstacle is None)
        yield GaugeMetricFamily("understudy_store_usable", "1 if the store is.", value=usable)

    def describe(self) -> list[Metric]:
        """Nothing ahead of time: there are no studies before the start."""
        return []
