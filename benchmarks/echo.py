"""A server that returns the body of each request: the speed of the bare framework."""

from __future__ import annotations

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["app"]


async def _echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")


app = Starlette(routes=[Route("/echo", _echo, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
    )
