"""What a handler is told of its trace."""

from __future__ import annotations

from sless_invoker.application.traces import told
from sless_platform.tracing import Trace

SENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HERE = "00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01"


def test_the_trace_as_it_is_here_stands_in_place_of_the_clients() -> None:
    headers = (("A", "1"), ("Traceparent", SENT), ("TraceState", "a=1"), ("baggage", "b=2"))

    assert told(headers, Trace(HERE, "a=1")) == [
        ("A", "1"),
        ("baggage", "b=2"),
        ("traceparent", HERE),
        ("tracestate", "a=1"),
    ]


def test_a_trace_that_begins_here_is_told_too() -> None:
    assert told((("A", "1"),), Trace(HERE)) == [("A", "1"), ("traceparent", HERE)]


def test_headers_that_are_no_trace_are_not_handed_on_as_one() -> None:
    assert told((("traceparent", "nonsense"), ("tracestate", "a=1"), ("A", "1")), None) == [("A", "1")]
