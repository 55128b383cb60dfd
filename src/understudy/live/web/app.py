"""The service as a FastAPI application: operations, page, health and metrics, in the middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from understudy.live.service import HttpError, Service
from understudy.live.web import page
from understudy.live.web.auth import Authorization, needed_scope
from understudy.live.web.hot_paths import HotPaths
from understudy.live.web.metrics import StudyMetrics
from understudy.live.web.middleware import RequestMiddleware
from understudy.live.web.refusals import HANDLERS
from understudy.live.web.routes import HEADS, OPERATIONS, Shared
from understudy.live.web.streams import Slots, Streams
from understudy.live.web.tokens import TokenRegistry
from understudy.live.web.views import StudyViews

TITLE = "Understudy, live"
ABOUT = (
    "An understudy in shadow mode: production reports its decisions and rewards; the service "
    "learns from them, and says when the understudy is better, with a confidence. Every event has "
    "an id and counts once however often it is sent, so an unanswered request can be sent again. "
    "Every response has the header `X-Request-Id`, its name in the log of the service.\n\n"
    "A refusal has one of these statuses. 400: the JSON cannot be read. 401, 403: the token is "
    "missing or wrong, or may only read; or, without tokens, another site or machine asks. 404: "
    "there is no such study. 409: the study is archived, exists already or is not ready, or an "
    "event contradicts what is known. 413, 415: the body is too large, or not sent as JSON. 422: a "
    "part of the request cannot be used; `fields` says why, and what to send instead. 429: too "
    "many wrong tokens came from this address. 503: the store cannot be used now, or too many "
    "requests of this kind are running; nothing was written, so try again."
)
TOKENS = (
    "Send `Authorization: Bearer TOKEN`. A token with the scope write may do all, one with the "
    "scope read may look and draw. A service without tokens serves its own machine only."
)
BEARER = {"type": "http", "scheme": "bearer", "description": TOKENS}
MOST_READS = 4  # at a time: each holds the GIL, which delays events, and takes memory


def make_app(service: Service, *, loopback_only: bool = True) -> FastAPI:
    """Return the application that a server runs; it starts the service, and stops it."""
    registry = CollectorRegistry()
    registry.register(StudyMetrics(service))
    requests = Middleware(
        RequestMiddleware,
        Authorization(TokenRegistry(service.tokens), loopback_only=loopback_only),
        registry=registry,
        operations={one.endpoint: one.name for one in OPERATIONS},
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        routes=[*OPERATIONS, *HEADS, *page.routes(), *other_routes],
        middleware=[requests, Middleware(HotPaths, service)],
        exception_handlers=HANDLERS,
        lifespan=lifespan,
        openapi_url=None,  # FastAPI would encode the document at every request
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.shared = Shared(
        service,
        Streams(StudyViews(service), service.stopped),
        reading=Slots(MOST_READS, f"{MOST_READS} logs or snapshots are being read"),
        making=asyncio.Lock(),
        loading=Slots(1, "another policy.json is being loaded"),
    )
    app.state.registry = registry
    document_json()  # now: events would wait for it
    return app


@cache
def document() -> dict[str, Any]:
    """Return FastAPI's OpenAPI document, with the scopes of tokens that the middleware asks for."""
    found = get_openapi(
        title=TITLE,
        version=version("understudy"),
        description=ABOUT,
        routes=OPERATIONS,
        tags=[{"name": tag} for tag in ("feedback", "answers", "studies", "live")],
        servers=[{"url": "/"}],
    )
    found["components"]["securitySchemes"] = {"bearer": BEARER}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            operation["security"] = [{"bearer": [needed_scope(method.upper(), path)]}]
    return found


@cache
def document_json() -> bytes:
    """Return the OpenAPI document as it is sent."""
    return bytes(JSONResponse(document()).body)


async def _document(_: Request) -> Response:
    return Response(document_json(), media_type=JSONResponse.media_type)


async def _alive(_: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def _ready(request: Request) -> Response:
    """Whether events would be taken now."""
    reason = request.app.state.shared.service.writer.unavailable
    if reason is not None:
        raise HttpError(503, "store unavailable", reason)
    return JSONResponse({"status": "ready"})


async def _metrics(request: Request) -> Response:
    # In a thread: those of 1,000 studies take 20 ms, for which events would wait.
    content = await asyncio.to_thread(generate_latest, request.app.state.registry)
    return Response(content, headers={"content-type": CONTENT_TYPE_LATEST})


other_routes = [
    Route("/openapi.json", _document),
    Route("/healthz", _alive),
    Route("/readyz", _ready),
    Route("/metrics", _metrics),
]
