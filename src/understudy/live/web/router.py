"""A router that finds an operation in as many steps as its path has segments.

A general router tries one pattern after the other: too slow beside an event that is ingested in a
tenth of a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as HttpScope

from understudy.formatting import counted, plain
from understudy.live.web.answers import MOST_FIELDS, refuse
from understudy.live.web.openapi import IN_PATH, Operation, by_path
from understudy.live.web.request_log import OPERATION

LONGEST_PATH = LONGEST_NAME = 60
UNKNOWN, TWICE = "there is no such parameter; leave it out", "it came more than once; send it once"


async def body_of(request: Request) -> bytes:
    """The body of a request, which mostly came in one piece.

    >>> import asyncio
    >>> pieces = iter([b'{"id":', b'"a"}'])
    >>> async def receive():
    ...     piece = next(pieces)
    ...     return {"type": "http.request", "body": piece, "more_body": piece != b'"a"}'}
    >>> asyncio.run(body_of(Request({"type": "http"}, receive)))
    b'{"id":"a"}'
    """
    pieces = []
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


async def not_found(scope: HttpScope, receive: Receive, send: Send) -> None:
    """What is answered where a path leads nowhere.

    >>> import asyncio
    >>> async def show(message):
    ...     print(message.get("status", message.get("body")))
    >>> asyncio.run(not_found({"type": "http", "path": "/nowhere"}, None, show))
    404
    b'{"error":"unknown path","message":"there is nothing at /nowhere; see /docs"}'
    """
    shown = plain(scope["path"], LONGEST_PATH)
    refusal = refuse(404, "unknown path", f"there is nothing at {shown}; see /docs")
    await refusal(scope, receive, send)


@dataclass(eq=False)
class _PathNode:
    """A node of the tree of paths: its children by name, one for any name, and its operations."""

    by_name: dict[str, _PathNode] = field(default_factory=dict)
    by_parameter: _PathNode | None = None
    operations: _PathOperations | None = None


class OperationRouter:
    """The operations as an ASGI application; what is not theirs goes to another.

    Where a name of a path and a parameter could both be meant, it is the name.
    """

    def __init__(self, operations: Sequence[Operation], otherwise: ASGIApp = not_found) -> None:
        self._root = _PathNode()
        self._otherwise = otherwise
        for path, by_method in by_path(operations).items():
            node = self._root
            for part in path.split("/"):
                if not IN_PATH.fullmatch(part):
                    node = node.by_name.setdefault(part, _PathNode())
                else:
                    node.by_parameter = node.by_parameter or _PathNode()
                    node = node.by_parameter
            node.operations = _PathOperations(IN_PATH.findall(path), by_method)

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        found = self._find(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._otherwise(scope, receive, send)
            return
        operations, given = found
        scope["path_params"] = given
        await operations(scope, receive, send)

    def _find(self, path: str) -> tuple[_PathOperations, dict[str, str]] | None:
        """Return the operations at a path, and its parameters."""
        node = self._root
        given: list[str] = []
        for part in path.split("/"):
            named = node.by_name.get(part)
            if named is None and part:
                given.append(part)
                named = node.by_parameter
            if named is None:
                return None
            node = named
        found = node.operations
        return None if found is None else (found, dict(zip(found.parameters, given, strict=True)))


class _PathOperations:
    """The operations of one path, by method."""

    def __init__(self, parameters: Sequence[str], by_method: Mapping[str, Operation]) -> None:
        self.parameters = parameters
        reading = {"HEAD": by_method["GET"]} if "GET" in by_method else {}
        self._answering = {**by_method, **reading}

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        operation = self._answering.get(method)
        if operation is None:
            allowed = ", ".join(self._answering)
            message = f"this path does not know the method; use {allowed}"
            refusal = refuse(405, "unknown method", message, headers={"allow": allowed})
            await refusal(scope, receive, send)
            return
        scope[OPERATION] = operation.name
        request = Request(scope, receive, send)
        unfit = _unfit_query(operation, request) if scope["query_string"] else None
        response = unfit or await operation.handler(request)
        if method == "HEAD":  # nothing but headers; a stream would never end
            response = _head_of(response)
        await response(scope, receive, send)


def _unfit_query(operation: Operation, request: Request) -> Response | None:
    """What is said of parameters that an operation would not look at: a typo is not ignored."""
    if operation.scope is None:
        return None
    known = {one.name for one in operation.parameters} - set(request.path_params)
    sent = [name for name, _ in request.query_params.multi_items()]
    unknown = dict.fromkeys(name for name in sent if name not in known)
    twice = [name for name in sorted(known) if sent.count(name) > 1]
    fields = [
        *({"field": plain(name, LONGEST_NAME), "message": UNKNOWN} for name in unknown),
        *({"field": name, "message": TWICE} for name in twice),
    ]
    if not fields:
        return None
    message = f"{counted(len(fields), 'parameter')} of the query cannot be used"
    return refuse(422, "invalid", message, fields[:MOST_FIELDS])


def _head_of(response: Response) -> Response:
    head = Response(status_code=response.status_code)
    head.raw_headers = response.raw_headers
    return head
