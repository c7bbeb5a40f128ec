"""Spans: nothing without an endpoint, exported with one."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import sys, threading
from sless_platform import telemetry
telemetry.configure("mail", None)
with telemetry.tracer("x").start_as_current_span("work") as span:
    assert not span.is_recording()
telemetry.shutdown()
assert threading.active_count() == 1
assert "opentelemetry.sdk" not in sys.modules
assert "opentelemetry.exporter" not in sys.modules
assert "grpc" not in sys.modules
"""

WITH = """
import concurrent.futures, threading
import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from sless_platform import telemetry

received = []

class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        received.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()

server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
telemetry.configure("mail", f"http://127.0.0.1:{port}")
telemetry.configure("mail", f"http://127.0.0.1:{port}")
with telemetry.tracer("x").start_as_current_span("work") as span:
    assert span.is_recording()
telemetry.shutdown()
telemetry.shutdown()
(request,) = received
(resource,) = request.resource_spans
attributes = {item.key: item.value.string_value for item in resource.resource.attributes}
assert attributes["service.name"] == "mail", attributes
assert resource.scope_spans[0].spans[0].name == "work"
server.stop(None).wait()
"""


def _run(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_without_an_endpoint_nothing_is_set_up() -> None:
    _run(WITHOUT)


def test_spans_reach_the_endpoint_before_shutdown_returns() -> None:
    _run(WITH)
