"""An application on a free port of this machine, until a test is over."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from understudy.live.service import Service
from understudy.live.web.app import make_app
from understudy.live.web.connections import ConnectionLimits, Connections

__all__ = ["Service", "serving", "serving_service", "serving_store"]


@contextlib.contextmanager
def serving(
    make: Callable[[], ASGIApp],
    ending: Callable[[], object] = lambda: None,
    limits: ConnectionLimits | None = None,
) -> Iterator[str]:
    """The address of the application that `make` gives; `ending` is called before the end."""
    ready = threading.Event()
    running: list[uvicorn.Server] = []

    async def serve() -> None:
        http: Any = Connections(limits).protocol
        config = uvicorn.Config(make(), port=0, log_level="error", log_config=None, http=http)
        server = uvicorn.Server(config)
        running.append(server)
        task = asyncio.create_task(server.serve())
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        ready.set()
        await task

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    try:
        assert ready.wait(60)
        port = running[0].servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        ending()
        running[0].should_exit = True
        thread.join()


def serving_service(service: Service) -> contextlib.AbstractContextManager[str]:
    """The address of a service."""
    return serving(lambda: make_app(service))


def serving_store(
    path: Path, limits: ConnectionLimits | None = None
) -> contextlib.AbstractContextManager[str]:
    """The address of the service of a store."""
    return serving(lambda: make_app(Service(str(path))), limits=limits)
