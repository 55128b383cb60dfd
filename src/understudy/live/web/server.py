"""Running the service: where it listens, how it logs, how it ends."""

from __future__ import annotations

import gc
import ipaddress
import logging
import signal
import sys
from contextlib import suppress
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOL_SOCKET, socket

import structlog
import uvicorn

from understudy.errors import InvalidArgument
from understudy.live.service import Service
from understudy.live.state import precompile
from understudy.live.store import hide_credentials, stored_tokens
from understudy.live.web.app import make_app
from understudy.live.web.http_protocol import BufferedHttpProtocol
from understudy.live.web.metrics import LogRateLimit

GRACE = 10  # seconds for requests that are under way at SIGTERM
SWITCH = 1e-4  # seconds a thread may hold the interpreter: the writer must not wait long for it
MOST_CONNECTIONS = 1_000


def serve(store: str, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; `InvalidArgument` if others could reach it without a token."""
    loopback = is_loopback(host)
    refuse_open(store, host, loopback=loopback)
    _log_as_json()
    sys.setswitchinterval(SWITCH)
    with _listening(host, port) as listening:
        service = Service(store)
        service.open()
        _say("compiling what learns; the first time, this takes some twenty seconds")
        precompile()
        config = uvicorn.Config(
            make_app(service, loopback_only=loopback),
            access_log=False,
            proxy_headers=False,
            log_config=None,
            http=BufferedHttpProtocol,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            limit_concurrency=MOST_CONNECTIONS,
        )
        for told_to_stop in (signal.SIGINT, signal.SIGTERM):
            # uvicorn ends as it should, then raises the signal again, which would be the exit code
            signal.signal(told_to_stop, lambda *_: None)
        gc.collect()
        gc.freeze()  # what was imported stays: no collection need go over it again
        AnnouncingServer(config, service).run(sockets=[listening])
        gc.unfreeze()  # so that it is let go at the end, as libraries expect


def _listening(host: str, port: int) -> socket:
    """The address, or `InvalidArgument` if it is taken, or not this machine's."""
    own = socket(AF_INET6 if ":" in host else AF_INET)
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
    if loopback:
        return
    if not stored_tokens(store):
        raise InvalidArgument(
            "host",
            host,
            "others could reach it, and the store has no token to tell them apart",
            f"first: understudy token add NAME --scope write --store {hide_credentials(store)}",
        )


class AnnouncingServer(uvicorn.Server):
    """Says where it listens when it does."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        for own in sockets if self.started and sockets else ():
            host, port = own.getsockname()[:2]
            where = f"[{host}]" if ":" in host else host
            _say(f"listening on http://{where}:{port}")

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._service.stopped.set()  # those who watch would never leave by themselves
        await super().shutdown(sockets)


class RateLimitFilter(logging.Filter):
    """Lets ten lines a second through: those of others must not fill a disk.

    >>> few = RateLimitFilter()
    >>> sum(few.filter(logging.makeLogRecord({"created": 7.5})) for _ in range(99))
    10
    """

    def __init__(self) -> None:
        super().__init__()
        self._pace = LogRateLimit()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is one of the first ten of its second."""
        return self._pace.allows(record.created)


def _say(line: str) -> None:
    """Print a line to the terminal."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def _log_as_json() -> None:
    """One JSON object a line, on standard error, from us and from uvicorn.

    All of it goes through `logging`, which goes on when a line cannot be written: where the log is
    on the disk of the store, one that is full must not stop the service too.
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
            foreign_pre_chain=shared,
        )
    )
    logging.getLogger("uvicorn.error").addFilter(RateLimitFilter())  # of malformed requests
    logging.raiseExceptions = False
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("understudy").setLevel(logging.INFO)
