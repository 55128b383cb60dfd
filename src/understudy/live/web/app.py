"""The service as a FastAPI application: operations, page, health and metrics, in the middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic.json_schema import models_json_schema
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from understudy.live.models import Refusal
from understudy.live.service import HttpError, Service
from understudy.live.web import page
from understudy.live.web.auth import READING, AuthMiddleware, needed_scope
from understudy.live.web.hot_paths import HotPaths
from understudy.live.web.metrics import StudyMetrics
from understudy.live.web.refusals import HANDLERS
from understudy.live.web.routes import OPERATIONS, Shared, router
from understudy.live.web.streams import Slots, Streams
from understudy.live.web.tokens import TokenRegistry
from understudy.live.web.views import StudyViews

TITLE = "Understudy, live"
ABOUT = (
    "An understudy in shadow mode: production reports its decisions and rewards; the service "
    "learns from them, and says when the understudy is better, with a confidence. Every event has "
    "an id and counts once however often it is sent, so an unanswered request can be sent again. "
    "Every response has the header `X-Request-Id`, its name in the log of the service."
)
TOKENS = (
    "Send `Authorization: Bearer TOKEN`. A token with the scope write may do all, one with the "
    "scope read may look and draw. A service without tokens serves its own machine only."
)
SCHEMAS = "#/components/schemas/{model}"
# The refusals of the middleware and of the parser, which many operations share.
REFUSALS = {
    400: "The body is no JSON.",
    401: "The token is missing or wrong.",
    403: "The token may only read; or, without tokens, another site or machine asks.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "A part of the request cannot be used: `fields` says why, and what to send instead.",
    429: "Too many wrong tokens came from this address.",
    503: "The store cannot be used now, or too many ask for this. Nothing was written; try again.",
}
MOST_READS = 4  # at a time: each takes the interpreter, which events wait for, and some memory
WITH_BODY = {400, 413, 415}
UNKNOWN_STUDY = "There is no such study."
NOT_TAKEN = "The study is archived, or the event contradicts what is known."
EXISTS = "There is another study of this name already."
OWN_REFUSALS = {
    "send_event": {409: NOT_TAKEN},
    "send_batch": {409: NOT_TAKEN},
    "create_study": {409: EXISTS},
    "load_snapshot": {409: EXISTS},
    "read_policy": {400: "The context is no JSON."},
    "read_snapshot": {409: "Contexts are still being prepared."},
}


def make_app(service: Service, *, loopback_only: bool = True) -> FastAPI:
    """Return the application that a server runs; it starts the service, and stops it."""
    registry = CollectorRegistry()
    registry.register(StudyMetrics(service))
    auth = Middleware(
        AuthMiddleware,
        TokenRegistry(service.tokens),
        loopback_only=loopback_only,
        registry=registry,
        operations=OPERATIONS,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        routes=[*router.routes, *page.routes(), *other_routes],
        middleware=[auth, Middleware(HotPaths, service)],
        exception_handlers=HANDLERS,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
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
    app.openapi = document  # type: ignore[method-assign] # as FastAPI's own docs extend it
    return app


@cache
def document() -> dict[str, Any]:
    """Return FastAPI's OpenAPI document with the refusals and tokens of the middleware."""
    found = get_openapi(
        title=TITLE,
        version=version("understudy"),
        description=ABOUT,
        routes=router.routes,
        tags=[{"name": tag} for tag in ("feedback", "answers", "studies", "live")],
        servers=[{"url": "/"}],
    )
    schemas = found["components"]["schemas"]
    schemas |= models_json_schema([(Refusal, "serialization")], ref_template=SCHEMAS)[1]["$defs"]
    for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's own 422
        schemas.pop(unused, None)
    bearer = {"type": "http", "scheme": "bearer", "description": TOKENS}
    found["components"]["securitySchemes"] = {"bearer": bearer}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            _complete(operation, method.upper(), path)
    return found


def _complete(operation: dict[str, Any], method: str, path: str) -> None:
    """Add the refusals and the scope of an operation; its first line is its summary."""
    summary, _, description = operation["description"].partition("\n\n")
    words = {status: text for status, text in REFUSALS.items() if status not in WITH_BODY}
    if method not in READING:
        words = dict(REFUSALS)
    if "{study}" in path:
        words[404] = UNKNOWN_STUDY
    words |= OWN_REFUSALS.get(operation["operationId"], {})
    content = {"application/json": {"schema": {"$ref": SCHEMAS.format(model=Refusal.__name__)}}}
    (done,) = (status for status in operation["responses"] if int(status) < HTTPStatus.BAD_REQUEST)
    operation |= {
        "summary": summary.removesuffix("."),
        "description": description,
        "security": [{"bearer": [needed_scope(method, path)]}],
        "responses": {
            done: {**operation["responses"][done], "description": "Done."},
            **{
                str(status): {"description": words[status], "content": content}
                for status in sorted(words)
            },
        },
    }


async def _alive(_: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def _ready(request: Request) -> Response:
    """Whether events would be taken now."""
    reason = request.app.state.shared.service.writer.unavailable
    if reason is not None:
        raise HttpError(503, "store unavailable", reason)
    return JSONResponse({"status": "ready"})


async def _metrics(request: Request) -> Response:
    content = generate_latest(request.app.state.registry)
    return Response(content, headers={"content-type": CONTENT_TYPE_LATEST})


other_routes = [Route("/healthz", _alive), Route("/readyz", _ready), Route("/metrics", _metrics)]
