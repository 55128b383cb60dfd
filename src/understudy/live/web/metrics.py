"""Metrics of requests and studies, and a limit of log lines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from understudy.live.service import Service
from understudy.live.spec import SECOND
from understudy.live.web.study_json import describe

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
COUNTS = {  # of `StudyNow`
    "decisions": "Decisions on disk.",
    "folded": "Decisions processed.",
    "expired": "Decisions that got the default reward.",
    "later_events": "Events of units that came after those that count.",
    "changing_units": "Units whose action changed.",
    "contradictions": "Decisions whose propensities contradict the declared least one.",
}
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
        counter, gauge = CounterMetricFamily, GaugeMetricFamily
        studies = [describe(one, one.state, writer.time()) for one in writer.studies.values()]
        for name, meaning in COUNTS.items():
            family = counter(f"understudy_{name}", meaning, labels=["study"])
            for one in studies:
                family.add_metric([one.study.name], getattr(one, name))
            yield family
        meaning = "1 if the study has stopped learning."
        stopped = gauge("understudy_stopped", meaning, labels=["study"])
        refused = counter("understudy_refused", "Events not taken.", labels=["study", "reason"])
        for one in studies:
            stopped.add_metric([one.study.name], float(one.fault is not None))
            for reason, number in one.refused.items():
                refused.add_metric([one.study.name, reason], number)
        yield from (stopped, refused)
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
