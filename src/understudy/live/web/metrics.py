"""Metrics of requests and studies, and warnings at a limited rate, so they cannot fill a disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from understudy.formatting import plain
from understudy.live.live_study import LiveStudy
from understudy.live.service import Service
from understudy.live.spec import SECOND
from understudy.live.writer import Writer

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MOST_A_SECOND = 10  # lines: enough to see an attack, and some 300 MB a day at the most
LONGEST_FACT = 200

disable_created_metrics()  # type: ignore[no-untyped-call] # a time for each counter, which doubles their number


class RequestMetrics:
    """Requests, counted and timed until their answer begins: a stream may last for days.

    >>> registry = CollectorRegistry()
    >>> RequestMetrics(registry).count("GET", "read_studies", 200, 0.001)
    >>> labels = {"method": "GET", "operation": "read_studies", "status": "200"}
    >>> registry.get_sample_value("understudy_requests_total", labels)
    1.0
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("method", "operation", "status")
        self._requests = Counter(
            "understudy_requests", "Requests that were answered.", labels, registry=registry
        )
        self._seconds = Histogram(
            "understudy_request_seconds",
            "Seconds until an answer began.",
            ("operation",),
            registry=registry,
            buckets=BUCKETS,
        )
        # `labels` checks and joins its arguments: too slow for every request.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, method: str, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = (method if method in METHODS else OTHER, operation, status)
        if key not in self._children:
            requests = self._requests.labels(key[0], operation, str(status))
            self._children[key] = requests, self._seconds.labels(operation)
        requests, times = self._children[key]
        requests.inc()
        times.observe(seconds)


# Metrics of every study: kind, name, meaning, value.
OF_STUDIES: tuple[tuple[type, str, str, Callable[[LiveStudy], float]], ...] = (
    (
        CounterMetricFamily,
        "understudy_decisions",
        "Decisions on disk.",
        lambda study: study.next_seq - 1,
    ),
    (
        CounterMetricFamily,
        "understudy_folded",
        "Decisions processed.",
        lambda study: study.state.seq,
    ),
    (
        CounterMetricFamily,
        "understudy_expired",
        "Decisions that got the default reward.",
        lambda study: study.state.expired,
    ),
    (
        GaugeMetricFamily,
        "understudy_stopped",
        "1 if the study has stopped learning.",
        lambda study: study.fault is not None,
    ),
)
# Metrics of the store, all gauges: name, meaning, value.
OF_STORE: tuple[tuple[str, str, Callable[[Writer], float]], ...] = (
    (
        "understudy_store_usable",
        "1 if the store can be used.",
        lambda writer: writer.unavailable is None,
    ),
    (
        "understudy_store_lost",
        "Acknowledged writes that are missing from the store.",
        lambda writer: writer.store.lost,
    ),
    (
        "understudy_clock_ahead_seconds",
        "Seconds by which the service's clock is ahead of the machine's.",
        lambda writer: writer.clock.running.ahead() / SECOND,
    ),
)


class StudyMetrics(Collector):
    """The counts of every study, and the state of the store, read when they are asked for."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Return all of them."""
        writer = self._service.writer
        for kind, title, meaning, of_study in OF_STUDIES:
            family = kind(title, meaning, labels=["study"])
            for name, study in writer.studies.items():
                family.add_metric([name], float(of_study(study)))
            yield family
        labels = ["study", "reason"]
        refused = CounterMetricFamily("understudy_refused", "Events not taken.", labels=labels)
        for name, study in writer.studies.items():
            for reason, count in study.refusals().items():
                refused.add_metric([name, reason], count)
        yield refused
        yield CounterMetricFamily("understudy_commits", "Groups on disk.", value=writer.commits)
        for title, meaning, of_writer in OF_STORE:
            yield GaugeMetricFamily(title, meaning, value=float(of_writer(writer)))

    def describe(self) -> list[Metric]:
        """Return nothing: there are no studies before the start."""
        return []


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
        """Log a request that was refused."""
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
