"""Running the service: where it listens, how it logs, how it ends."""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import Full, Queue, SimpleQueue
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOL_SOCKET, socket
from types import FrameType
from typing import Any, Self, TextIO

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import HANDLED_SIGNALS

from understudy.errors import InvalidArgument, StoreUnavailable
from understudy.live.service import Service
from understudy.live.state import precompile
from understudy.live.store import hide_credentials, stored_tokens
from understudy.live.web.app import make_app
from understudy.live.web.connections import ConnectionLimits, Connections
from understudy.live.web.metrics import LogRateLimit

REQUEST_GRACE = 7  # seconds for requests at a signal: a store that hangs is noticed after 6
GRACE = 18  # seconds until the process ends, whatever hangs: the writer takes up to ten of them
SWITCH = 1e-4  # seconds a thread may hold the interpreter: the writer must not wait long for it
LOOK = 0.05  # seconds between two looks for a signal while kernels are compiled
MOST_LINES = 1_000  # that wait to be written: a second of the most that is logged, and more
LAST_WORDS = 1.0  # seconds for the last lines, of `GRACE`: far more than a pipe that is read needs
FAILED, REFUSED = 1, 2  # exit codes; the command line ends with the second if it refuses

log = structlog.get_logger("understudy.live")


def serve(store: str, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; `InvalidArgument` if others could reach it without a token."""
    loopback = is_loopback(host)
    refuse_open(store, host, loopback=loopback)
    sys.setswitchinterval(SWITCH)
    with _log_as_json() as lines, _listening(host, port) as listening:
        service = Service(store)
        app = make_app(service, loopback_only=loopback)
        server = ServiceServer(configure(app), service, lines)
        server.handle_signals()
        try:
            service.open()
        except StoreUnavailable:
            if not server.should_exit:  # else a signal has ended the start already
                raise
        if not server.should_exit:
            _compile(server, service, lines)
        if server.should_exit:
            service.writer.store.close()
            return
        gc.collect()
        gc.freeze()  # what was imported stays: no collection need go over it again
        server.run(sockets=[listening])
        gc.unfreeze()  # so that its objects are collected at the end, as libraries expect
        if service.writer.is_running:
            _leave("the store does not answer", lines)


def configure(app: ASGIApp, **options: Any) -> uvicorn.Config:
    """Return uvicorn's settings for an application; options are those that differ."""
    limits = _limits()
    settings: dict[str, Any] = {
        "access_log": False,
        "proxy_headers": False,
        "log_config": None,
        "http": Connections(limits).protocol,
        "ws": "none",
        "server_header": False,
        "timeout_keep_alive": limits.head_seconds,
        "timeout_graceful_shutdown": REQUEST_GRACE,
    }
    return uvicorn.Config(app, **settings | options)


def _limits() -> ConnectionLimits:
    """Limits that leave half of the open files to the store, and to connections that wait."""
    limits = ConnectionLimits()
    try:
        import resource  # noqa: PLC0415 - Windows has neither this module nor the limit
    except ImportError:
        return limits
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= files < 2 * limits.connections:
        wanted = 2 * limits.connections
        files = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
        connections = files // 2
        limits = replace(limits, connections=connections, authorized=connections * 9 // 10)
    return limits


def _compile(server: ServiceServer, service: Service, lines: LogQueue) -> None:
    """Compile kernels, in a thread: the compiler cannot be interrupted, a start can."""
    lines.say("compiling what learns; the first time, this takes some twenty seconds")
    pool = ThreadPoolExecutor(1)
    compiling = pool.submit(precompile)
    pool.shutdown(wait=False)
    while not (compiling.done() or server.should_exit):
        wait([compiling], LOOK)
    if not compiling.done():
        service.writer.store.close()
        lines.wait()
        os._exit(0)  # the end of the interpreter would wait for the compiler
    compiling.result()


def _listening(host: str, port: int) -> socket:
    """The address, or `InvalidArgument` if it is taken, or not this machine's."""
    own = socket(AF_INET6 if ":" in host else AF_INET)
    if os.name == "posix":  # elsewhere another service could take the same address
        own.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    try:
        own.bind((host, port))
    except OSError as error:
        own.close()
        reason = f"{host} cannot be listened on there ({error.strerror})"
        raise InvalidArgument("port", port, reason, "choose another with --port, or 0") from None
    return own


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def refuse_open(store: str, host: str, *, loopback: bool) -> None:
    """Raise `InvalidArgument` if others could reach a service that asks for no token."""
    if not loopback and not stored_tokens(store):
        raise InvalidArgument(
            "host",
            host,
            "others could reach it, and the store has no token to tell them apart",
            f"first: understudy token add NAME --scope write --store {hide_credentials(store)}",
        )


class ServiceServer(uvicorn.Server):
    """Announces its address, and ends within `GRACE` seconds after a signal, whatever hangs."""

    def __init__(self, config: uvicorn.Config, service: Service, lines: LogQueue) -> None:
        super().__init__(config)
        self._service = service
        self._lines = lines
        self._signals: SimpleQueue[int] = SimpleQueue()  # its `put` is safe in a signal handler

    def handle_signals(self) -> None:
        """From now on, a signal ends the server, even one that does not run yet."""
        threading.Thread(target=self._end_in_time, daemon=True).start()
        for stop in HANDLED_SIGNALS:
            signal.signal(stop, self.handle_exit)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._signals.put(sig)

    def _end_in_time(self) -> None:
        self._signals.get()
        time.sleep(GRACE - LAST_WORDS)
        _leave(f"it has not stopped within {GRACE} seconds of a signal", self._lines)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Do nothing: uvicorn's handlers would come late, and raise signals again at the end."""
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        for own in sockets if self.started and sockets else ():
            host, port = own.getsockname()[:2]
            where = f"[{host}]" if ":" in host else host
            self._lines.say(f"listening on http://{where}:{port}")

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._service.stopped.set()  # those who watch would never leave by themselves
        await super().shutdown(sockets)


def _leave(reason: str, lines: LogQueue) -> None:
    """End the process at once: a thread that hangs would keep it."""
    log.error("the service ends without closing its store", reason=reason)
    lines.wait()
    os._exit(FAILED)


class LogQueue(logging.Handler):
    """Hands lines to a thread that writes them, and drops those for which there is no room.

    Standard error may be a pipe that is full and not read: neither the start nor the end of the
    service waits for it. So the thread uses no handler of `logging`, whose lock it would hold: at
    the end of the process, `logging` takes the locks of all handlers.

    As a context, it ends the process if lines cannot be written: the thread also holds the lock of
    standard error, and the end of the interpreter would wait for that one.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._lines: Queue[str] = Queue(MOST_LINES)
        threading.Thread(target=self._write, args=[stream], daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):  # a line that cannot be made must not stop what it is about
            self.say(self.format(record))

    def say(self, line: str) -> None:
        """Write a line as it is, after those before it."""
        with suppress(Full):
            self._lines.put_nowait(line)

    def wait(self) -> bool:
        """Wait for the lines to be written, for at most a second; False if some are not."""
        done = self._lines.all_tasks_done
        with done:
            return done.wait_for(lambda: not self._lines.unfinished_tasks, LAST_WORDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if not self.wait():
            os._exit(REFUSED if error else 0)

    def _write(self, stream: TextIO) -> None:
        while True:
            line = self._lines.get()
            with suppress(Exception):  # a full disk, or a stream that is closed: the next may do
                stream.write(f"{line}\n")
                stream.flush()
            self._lines.task_done()


def _log_as_json() -> LogQueue:
    """Log one JSON object a line, on standard error, from us and from uvicorn.

    The service goes on when a line cannot be written or queued: where the log is on the disk of
    the store, one that is full must not stop the service too.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    handler = LogQueue(sys.stderr)
    as_json = structlog.processors.JSONRenderer()
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(as_json, foreign_pre_chain=shared))
    limit = LogRateLimit()  # of malformed requests
    logging.getLogger("uvicorn.error").addFilter(lambda line: limit.allows(line.created))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("understudy").setLevel(logging.INFO)
    return handler
