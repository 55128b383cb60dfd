"""Request metrics, and warnings at a limited rate, so that they cannot fill a disk."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from understudy.formatting import plain

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
EDGES = (*map(str, BUCKETS), "+Inf")
MOST_A_SECOND = 10
LONGEST_FACT = 200


class RequestMetrics(Collector):
    """Requests, counted and timed until their answer begins: a stream may last for days.

    Every request pays for this, so it only adds to plain numbers, from the one thread that
    answers; `collect` turns them into metrics.

    >>> registry = CollectorRegistry()
    >>> RequestMetrics(registry).count("GET", "list_studies", 200, 0.001)
    >>> labels = {"method": "GET", "operation": "list_studies", "status": "200"}
    >>> registry.get_sample_value("understudy_requests_total", labels)
    1
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, _Times] = {}
        registry.register(self)

    def count(self, method: str, operation: str, status: int, seconds: float) -> None:
        """One more."""
        key = (method if method in METHODS else OTHER, operation, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        times = self._times.get(operation)
        if times is None:
            times = self._times[operation] = _Times()
        times.counts[bisect_left(BUCKETS, seconds)] += 1
        times.total += seconds

    def collect(self) -> Iterator[Metric]:
        """All of it, as Prometheus wants it."""
        requests = CounterMetricFamily(
            "understudy_requests",
            "Requests that were answered.",
            labels=("method", "operation", "status"),
        )
        for (method, operation, status), number in list(self._requests.items()):
            requests.add_metric((method, operation, str(status)), number)
        yield requests
        seconds = HistogramMetricFamily(
            "understudy_request_seconds", "Seconds until an answer began.", labels=("operation",)
        )
        for operation, times in list(self._times.items()):
            counted = zip(EDGES, accumulate(times.counts), strict=True)
            seconds.add_metric((operation,), list(counted), times.total)
        yield seconds


class _Times:
    """How many requests ended in each bucket, and how long all of them took."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(EDGES)
        self.total = 0.0


class LogRateLimit:
    """Lets ten a second pass.

    >>> pace = LogRateLimit()
    >>> sum(pace.allows(7.5) for _ in range(99)), pace.allows(8.0)
    (10, True)
    """

    def __init__(self) -> None:
        self._second = self._passed = 0

    def allows(self, now: float) -> bool:
        """Whether one more may pass at this time, in seconds."""
        second = int(now)
        if second != self._second:
            self._second, self._passed = second, 0
        self._passed += 1
        return self._passed <= MOST_A_SECOND


class Warnings:
    """A line for each request that was refused or failed, ten a second at most.

    Those above are counted, and the next line says how many there were (`unlogged`).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = structlog.get_logger("understudy.live")
        self._clock = clock
        self._pace = LogRateLimit()
        self._unlogged = 0

    def refused(self, status: int, facts: Mapping[str, str]) -> None:
        """A request that was not answered as its sender wished."""
        if not self._pace.allows(self._clock()):
            self._unlogged += 1
            return
        unlogged, self._unlogged = self._unlogged, 0
        more = {"unlogged": unlogged} if unlogged else {}
        self._log.warning("request refused", status=status, **more, **_visible(facts))

    def broken(self, error: Exception, facts: Mapping[str, str]) -> None:
        """Log an unexpected error with its traceback, whatever the rate."""
        self._log.error("request broken", exc_info=error, **_visible(facts))


def _visible(facts: Mapping[str, str]) -> dict[str, str]:
    """Foreign text cannot pretend to be another line of the log, nor fill it."""
    return {name: plain(text, LONGEST_FACT) for name, text in facts.items() if text}
