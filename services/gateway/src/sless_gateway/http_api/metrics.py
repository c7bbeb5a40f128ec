"""What is counted, for Prometheus. No label names a tenant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

KNOWN_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)


class Metrics:
    """Requests by route template, method and status class, and how long they took; calls in flight."""

    def __init__(self, calls_in_flight: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "sless_http_requests", "Requests answered.", ("route", "method", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "sless_http_request_duration_seconds",
            "From a request's head to the end of its answer.",
            ("route",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        in_flight = Gauge("sless_calls_in_flight", "Calls of functions under way.", registry=self._registry)
        in_flight.set_function(calls_in_flight)
        # Looking a child up by its labels costs more than counting it.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request that was answered. `route`: a template of the route table, "" for none."""
        key = (route, method, status // 100)
        children = self._children.get(key)
        if children is None:
            children = self._child(route, method, status // 100)
            if method in KNOWN_METHODS:  # names that clients make up must not pile up
                self._children[key] = children
        children[0].inc()
        children[1].observe(seconds)

    def _child(self, route: str, method: str, hundreds: int) -> tuple[Counter, Histogram]:
        known = method if method in KNOWN_METHODS else "other"
        return self._requests.labels(route, known, f"{hundreds}xx"), self._seconds.labels(route)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)
