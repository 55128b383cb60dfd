"""The operations that production waits for, without the routes and layers of the framework."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as HttpScope

from understudy.live.live_study import LiveStudy
from understudy.live.models import Batch, Draw, Event
from understudy.live.service import Service
from understudy.live.web import routes
from understudy.live.web.refusals import REFUSED, parse_json, refusal_of, validate

PATH = re.compile("/v1/studies/([^/]+)/(events|batches|policy|draw)")


class HotPath(NamedTuple):
    """An operation, and the model of its body."""

    operation: Callable[..., Any]
    model: type[BaseModel] | None = None


HOT = {
    ("POST", "events"): HotPath(routes.send_event, Event),
    ("POST", "batches"): HotPath(routes.send_batch, Batch),
    ("POST", "draw"): HotPath(routes.draw_action, Draw),
    ("GET", "policy"): HotPath(routes.read_policy),
}


class HotPaths:
    """Middleware that answers requests for these operations, if they have no query.

    It calls the same functions as FastAPI's own routes, which take 70 to 90 µs more:
    docs/decisions/0002-plain-routes.md.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        is_plain = scope["type"] == "http" and not scope["query_string"]
        path = PATH.fullmatch(scope["path"]) if is_plain else None
        hot = HOT.get((scope["method"], path[2])) if path else None
        if path is None or hot is None:
            await self._app(scope, receive, send)
            return
        scope["endpoint"] = hot.operation
        try:
            body = await self._answer(hot, self._service.study(path[1]), receive)
            response = Response(body, media_type=routes.JSON)
        except REFUSED as error:
            response = refusal_of(scope, error)
        await response(scope, receive, send)

    async def _answer(self, hot: HotPath, study: LiveStudy, receive: Receive) -> bytes:
        if hot.model is None:
            return routes.policy_json(study)
        is_draw = hot.model is Draw
        try:
            body = await _body(receive) or (b"{}" if is_draw else b"")
            sent = validate(hot.model, parse_json(body))
            return to_json(await hot.operation(self._service, study, sent))
        except HTTPException:
            study.malformed += not is_draw
            raise


async def _body(receive: Receive) -> bytes:
    """The whole body: that of Starlette's `Request` takes 3 µs more."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
