"""A real receiver of OTLP over gRPC: keeps what it is sent, as one list of spans."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as pb_grpc
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

Found = TypeVar("Found")
LIMIT_SEC = 30


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came. `parent_id` "": the first of its trace. Times in nanoseconds since 1970."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    begun_at: int
    ended_at: int
    failed: bool
    message: str
    attributes: Mapping[str, Any] = field(repr=False)
    resource: Mapping[str, Any] = field(repr=False)


class Collector(pb_grpc.TraceServiceServicer):
    """What was received so far."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.http_endpoint = ""
        self._lock = threading.Lock()
        self._spans: list[ReceivedSpan] = []

    def take(self, spans: Iterable[ReceivedSpan]) -> None:
        """Keeps spans."""
        with self._lock:
            self._spans += spans

    def Export(self, request: pb.ExportTraceServiceRequest, context: object) -> pb.ExportTraceServiceResponse:
        """Takes spans."""
        self.take([span for each in request.resource_spans for span in _spans_of(each)])
        return pb.ExportTraceServiceResponse()

    @property
    def spans(self) -> Sequence[ReceivedSpan]:
        """All spans, in the order in which they came."""
        with self._lock:
            return list(self._spans)

    def trace(self, trace_id: str) -> Sequence[ReceivedSpan]:
        """The spans of one trace."""
        return [span for span in self.spans if span.trace_id == trace_id]

    def until(self, found: Callable[[Sequence[ReceivedSpan]], Found | None], what: str) -> Found:
        """Waits until the spans give something, and gives that."""
        end = time.monotonic() + LIMIT_SEC
        while time.monotonic() < end:
            if result := found(self.spans):
                return result
            time.sleep(0.05)
        names = sorted({f"{span.service}: {span.name}" for span in self.spans})
        raise AssertionError(f"waited {LIMIT_SEC} s for {what} in vain; received: {names}")


@contextmanager
def collecting() -> Iterator[Collector]:
    """A receiver on a free port of this machine."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(4))
    pb_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with _taking_json(collector) as collector.http_endpoint:
            yield collector
    finally:
        server.stop(None).wait()


@contextmanager
def _taking_json(collector: Collector) -> Iterator[str]:
    """OTLP over HTTP in JSON, for senders that have nothing but a standard library."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for each in sent["resourceSpans"]:
                # Identities are hexadecimal in OTLP's JSON, base64 in that of protobuf.
                for span in (span for scope in each["scopeSpans"] for span in scope["spans"]):
                    for name in ("traceId", "spanId", "parentSpanId"):
                        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
                collector.take(_spans_of(json_format.ParseDict(each, trace_pb2.ResourceSpans())))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
        finally:
            server.shutdown()
            serving.join()


def roots(spans: Iterable[ReceivedSpan]) -> Sequence[ReceivedSpan]:
    """Spans whose parent is not among them. One: they are a tree."""
    known = {span.span_id for span in spans}
    return [span for span in spans if span.parent_id not in known]


def path_to(span: ReceivedSpan, spans: Iterable[ReceivedSpan]) -> Sequence[str]:
    """Services and names from the root to the span."""
    by_id = {each.span_id: each for each in spans}
    path = []
    at: ReceivedSpan | None = span
    while at is not None:
        path.append(f"{at.service}: {at.name}")
        at = by_id.get(at.parent_id)
    return path[::-1]


def _spans_of(sent: trace_pb2.ResourceSpans) -> Iterator[ReceivedSpan]:
    resource = _facts(sent.resource.attributes)
    for scope in sent.scope_spans:
        for span in scope.spans:
            yield ReceivedSpan(
                service=resource.get("service.name", ""),
                name=span.name,
                kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                trace_id=span.trace_id.hex(),
                span_id=span.span_id.hex(),
                parent_id=span.parent_span_id.hex(),
                begun_at=span.start_time_unix_nano,
                ended_at=span.end_time_unix_nano,
                failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
                message=span.status.message,
                attributes=_facts(span.attributes),
                resource=resource,
            )


def _facts(sent: Iterable[KeyValue]) -> dict[str, Any]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in sent}
