"""A server that returns the body of each request: the speed of the framework, without a service.

It is a plain route on a FastAPI application, on the server settings of the service, with uvicorn's
own protocol.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from understudy.live.web.server import configure

__all__ = ["app"]


async def _echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")


app = FastAPI()
app.add_route("/echo", _echo, methods=["POST"])

if __name__ == "__main__":
    uvicorn.Server(configure(app, port=int(sys.argv[1]), http="httptools")).run()
