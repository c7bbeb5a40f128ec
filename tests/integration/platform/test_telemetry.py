"""Spans: nothing without an endpoint, exported with one, and never in the way."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.support.otlp import ReceivedSpan, collecting

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{SPAN}-01"

WITHOUT = f"""
import sys, threading
from sless_platform import telemetry, tracing
telemetry.configure("mail", None)
assert telemetry.accept("GET", traceparents=["{SENT}"], tracestates=["a=1"]) is None
assert tracing.current() == tracing.Trace("{SENT}", "a=1")
with telemetry.span("work") as span:
    assert span is None
    assert tracing.traceparent() == "{SENT}"
assert telemetry.accept("GET", traceparents=[], tracestates=[]) is None
assert tracing.current().sampled
assert tracing.current().trace_id != "{TRACE}"
telemetry.shutdown()
assert threading.active_count() == 1
assert not [name for name in sys.modules if name.startswith(("opentelemetry", "grpc"))]
"""


def _run(program: str, *arguments: str) -> Any:
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout) if ended.stdout else None


def _recorded(program: str, ratio: float = 1.0) -> tuple[Any, dict[str, ReceivedSpan]]:
    """What a program printed as JSON, and its spans by name."""
    whole = f"""
import json, sys
from sless_platform import telemetry, tracing
from sless_platform.errors import NotFound
from sless_platform.telemetry import Kind
telemetry.configure("mail", sys.argv[1], {ratio})
{program}
telemetry.shutdown()
telemetry.shutdown()
"""
    with collecting() as collector:
        told = _run(whole, collector.endpoint)
        return told, {span.name: span for span in collector.spans}


def test_without_an_endpoint_nothing_is_set_up_and_traces_flow() -> None:
    _run(WITHOUT)


def test_spans_stand_under_each_other_and_are_sent_before_shutdown_returns() -> None:
    told, spans = _recorded(f"""
served = telemetry.accept("GET", {{"http.request.method": "GET"}}, traceparents=["{SENT}"], tracestates=["a=1"])
with telemetry.span("work", kind=Kind.CLIENT) as span:
    span.note({{"size": 3}})
    span.rename("hard work")
    print(json.dumps([tracing.traceparent(), tracing.current().tracestate]))
assert tracing.current() == served.trace
served.end()
""")

    served, work = spans["GET"], spans["hard work"]
    assert (served.trace_id, served.parent_id, served.kind) == (TRACE, SPAN, "SERVER")
    assert (work.trace_id, work.parent_id, work.kind) == (TRACE, served.span_id, "CLIENT")
    assert told == [f"00-{TRACE}-{work.span_id}-01", "a=1"]
    assert (served.attributes, work.attributes) == ({"http.request.method": "GET"}, {"size": 3})
    assert (served.resource["service.name"], served.resource["service.namespace"]) == ("mail", "sless")
    assert not served.failed


def test_a_trace_begins_with_the_first_span() -> None:
    told, spans = _recorded("""
with telemetry.accept("GET", traceparents=["nonsense"], tracestates=["a=1"]):
    print(json.dumps([tracing.traceparent(), tracing.current().tracestate]))
""")

    assert spans["GET"].parent_id == ""
    assert told == [f"00-{spans['GET'].trace_id}-{spans['GET'].span_id}-01", ""]


def test_errors_are_recorded_without_secrets_and_go_on() -> None:
    _, spans = _recorded("""
tracing.enter(tracing.begin(ratio=1))
for name, error in (("typed", NotFound("no http://a:" + 8 * "x" + "@b here")), ("untyped", ValueError("secret"))):
    try:
        with telemetry.span(name):
            raise error
    except (NotFound, ValueError) as raised:
        assert raised is error
""")

    assert (spans["typed"].failed, spans["typed"].attributes) == (True, {"error.type": "NOT_FOUND"})
    assert spans["typed"].message == "no http://a:[redacted]@b here"
    assert (spans["untyped"].failed, spans["untyped"].attributes) == (True, {"error.type": "ValueError"})
    assert spans["untyped"].message == ""


def test_nothing_is_made_of_a_trace_that_is_not_sampled() -> None:
    told, spans = _recorded(
        f"""
assert telemetry.accept("GET", traceparents=["{SENT[:-1]}0"], tracestates=[]) is None
with telemetry.span("work") as span:
    assert span is None
assert telemetry.accept("GET", traceparents=[], tracestates=[]) is None
print(json.dumps(tracing.traceparent()))
served = telemetry.accept("wanted by its caller", traceparents=["{SENT}"], tracestates=[])
served.end()
""",
        ratio=0.0,
    )

    assert told.endswith("-00")
    assert list(spans) == ["wanted by its caller"]


AWAY = """
import json, socket, sys, time
from sless_platform import telemetry, tracing
listening = socket.create_server(("127.0.0.1", 0), backlog=0)  # takes connections, and says nothing
telemetry.configure("mail", f"http://127.0.0.1:{listening.getsockname()[1]}")
tracing.enter(tracing.begin(ratio=1))
slowest = 0.0
for _ in range(10_000):
    before = time.perf_counter()
    with telemetry.span("work"):
        pass
    slowest = max(slowest, time.perf_counter() - before)
before = time.perf_counter()
telemetry.shutdown()
print(json.dumps([slowest, time.perf_counter() - before]))
"""


def test_an_endpoint_that_says_nothing_holds_nobody_up() -> None:
    """More spans than the queue takes; what they cost is far below what the exporter waits for an answer (10 s)."""
    ended = subprocess.run([sys.executable, "-c", AWAY], capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 0, ended.stderr
    slowest, shutdown = json.loads(ended.stdout)
    assert slowest < 5
    assert shutdown < 8
    assert len(ended.stderr.splitlines()) < 10, "a queue that is full must not fill the log"
