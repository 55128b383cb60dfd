"""Metrics of requests and studies, and a limit of log lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from understudy.live.live_study import LiveStudy
from understudy.live.service import Service
from understudy.live.spec import SECOND

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MOST_A_SECOND = 10  # lines: enough to see an attack, and some 300 MB a day at the most

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
        requests = Counter(
            "understudy_requests",
            "Requests that were answered.",
            ("method", "operation", "status"),
            registry=registry,
        )
        seconds = Histogram(
            "understudy_request_seconds",
            "Seconds until an answer began.",
            ("operation",),
            registry=registry,
            buckets=BUCKETS,
        )
        # `labels` checks and joins its arguments, which takes 2 µs.
        self._requests, self._seconds = cache(requests.labels), cache(seconds.labels)

    def count(self, method: str, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests(method if method in METHODS else OTHER, operation, status).inc()
        self._seconds(operation).observe(seconds)


class StudyMetrics(Collector):
    """The counts of every study, and the state of the store, read when they are asked for."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Return all of them."""
        writer = self._service.writer
        studies = writer.studies

        def each(
            kind: type[CounterMetricFamily | GaugeMetricFamily],
            name: str,
            meaning: str,
            value: Callable[[LiveStudy], float],
        ) -> Metric:
            family = kind(f"understudy_{name}", meaning, labels=["study"])
            for study in studies.values():
                family.add_metric([study.spec.name], float(value(study)))
            return family

        counter, gauge = CounterMetricFamily, GaugeMetricFamily
        yield each(counter, "decisions", "Decisions on disk.", lambda one: one.next_seq - 1)
        yield each(counter, "folded", "Decisions processed.", lambda one: one.state.seq)
        meaning = "Decisions that got the default reward."
        yield each(counter, "expired", meaning, lambda one: one.state.expired)
        meaning = "1 if the study has stopped learning."
        yield each(gauge, "stopped", meaning, lambda one: one.fault is not None)
        labels = ["study", "reason"]
        refused = counter("understudy_refused", "Events not taken.", labels=labels)
        for name, study in studies.items():
            for reason, number in study.refusals().items():
                refused.add_metric([name, reason], number)
        yield refused
        yield counter("understudy_commits", "Groups on disk.", value=writer.commits)
        usable = float(writer.unavailable is None)
        yield gauge("understudy_store_usable", "1 if the store can be used.", value=usable)
        meaning = "Acknowledged writes that are missing from the store."
        yield gauge("understudy_store_lost", meaning, value=writer.store.lost)
        meaning = "Seconds by which the service's clock is ahead of the machine's."
        ahead = writer.clock.running.ahead() / SECOND
        yield gauge("understudy_clock_ahead_seconds", meaning, value=ahead)


class LogRateLimit:
    """Lets ten lines a second pass, so that clients cannot fill a disk, and counts the others.

    >>> limit = LogRateLimit()
    >>> sum(limit.allows(7.5) for _ in range(99)), limit.allows(8.0), limit.unlogged
    (10, True, 89)
    """

    def __init__(self) -> None:
        self.unlogged = self._second = self._passed = 0

    def allows(self, now: float) -> bool:
        """Whether one more may pass at this time, in seconds."""
        if int(now) != self._second:
            self._second, self._passed = int(now), 0
        allowed = self._passed < MOST_A_SECOND
        self._passed += allowed
        self.unlogged += not allowed
        return allowed
