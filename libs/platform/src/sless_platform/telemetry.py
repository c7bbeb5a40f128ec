"""Spans by OpenTelemetry. Without an endpoint, and in a trace that is not sampled, none are made: no thread, no exporter, no object.

Which trace work belongs to is `sless_platform.tracing`'s to say, with spans or without.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from sless_platform import tracing
from sless_platform.errors import PlatformError
from sless_platform.logging import scrub
from sless_platform.tracing import Trace

if TYPE_CHECKING:
    from opentelemetry import trace as otel
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

P = ParamSpec("P")
T = TypeVar("T")
Value = str | bool | int | float
Attributes = Mapping[str, Value]

_SHUTDOWN_SEC: Final = 3.0
_DESCRIPTION_CHARS: Final = 500


class Kind(enum.Enum):
    """A span's part in a call: inside one process, its caller's side, its server's side."""

    INTERNAL = "INTERNAL"
    CLIENT = "CLIENT"
    SERVER = "SERVER"


class Span:
    """A piece of work that is being recorded, until `end`, or for a block; an error that leaves the block is recorded.

    `trace`: what stands under it.
    """

    __slots__ = ("_span", "trace")

    def __init__(self, span: otel.Span, tracestate: str) -> None:
        context = span.get_span_context()
        self.trace = Trace(f"00-{context.trace_id:032x}-{context.span_id:016x}-01", tracestate)
        self._span = span

    def rename(self, name: str) -> None:
        """Name it by what has become known since it began."""
        self._span.update_name(name)

    def note(self, attributes: Attributes) -> None:
        """Add facts, named by OpenTelemetry's semantic conventions where these have a name."""
        self._span.set_attributes(attributes)

    def fail(self, error_type: str, description: str = "") -> None:
        """The work failed; secrets in the description go."""
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("error.type", error_type)
        self._span.set_status(StatusCode.ERROR, scrub(description)[:_DESCRIPTION_CHARS] or None)

    def fail_with(self, error: BaseException) -> None:
        """The work failed with this error. What an untyped one says is the log's alone."""
        if isinstance(error, PlatformError):
            self.fail(error.reason, error.message)
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.fail("CANCELLED")
        else:
            self.fail(type(error).__qualname__)

    def end(self) -> None:
        """The work is over; said again, it changes nothing."""
        if self._span.is_recording():
            self._span.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self.fail_with(error)
        self.end()


class _Recorder:
    """Makes and exports the spans of this process."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import context, trace

        self._provider = provider
        self._tracer = provider.get_tracer("sless")
        self._api = trace
        self._nothing = context.Context()
        self._kinds = {kind: trace.SpanKind[kind.value] for kind in Kind}

    def begin(self, name: str, kind: Kind, attributes: Attributes | None, parent: Trace | None) -> Span:
        span = self._tracer.start_span(
            name,
            self._nothing if parent is None else self._context(parent),
            kind=self._kinds[kind],
            attributes=attributes,
        )
        return Span(span, "" if parent is None else parent.tracestate)

    def _context(self, parent: Trace) -> Context:
        api = self._api
        state = api.TraceState.from_header([parent.tracestate]) if parent.tracestate else None
        of_parent = api.SpanContext(
            int(parent.trace_id, 16), int(parent.span_id, 16), True, api.TraceFlags(api.TraceFlags.SAMPLED), state
        )
        made: Context = api.set_span_in_context(api.NonRecordingSpan(of_parent), self._nothing)
        return made

    def shutdown(self) -> None:
        """Send what is left. An endpoint that does not answer holds nobody up for longer than a few seconds."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(_SHUTDOWN_SEC)


_recorder: _Recorder | None = None
_ratio = 1.0


def configure(service: str, endpoint: str | None, ratio: float = 1.0) -> None:
    """Export spans of this process, as `service`, to an OTLP/gRPC endpoint (`http://host:4317`); None means none are made.

    `ratio`: which share of the traces that begin here is sampled; of the others their beginner has decided. Once a process, after a
    fork: the exporter runs a thread. A queue of bounded length stands before it, and what does not fit is dropped.
    """
    global _recorder, _ratio  # noqa: PLW0603 - one exporter a process
    _ratio = ratio
    if endpoint is None or _recorder is not None:
        return
    # Imported here: the SDK and the exporter cost 60 ms and memory that a process without an endpoint does not owe.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    resource = Resource.create({"service.namespace": "sless", "service.name": service})
    provider = TracerProvider(resource=resource, sampler=ALWAYS_ON, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _recorder = _Recorder(provider)


def shutdown() -> None:
    """Send what is left and stop the exporter; nothing when none runs. Blocks for three seconds at most."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.shutdown()


def wanted(trace: Trace | None) -> bool:
    """Whether spans of this trace are made: for callers that spare themselves what a span would be told."""
    return _recorder is not None and trace is not None and trace.sampled


def begin(
    name: str, attributes: Attributes | None = None, kind: Kind = Kind.INTERNAL, *, parent: Trace | None
) -> Span | None:
    """A span under `parent`; None when there is no such trace, it is not sampled, or no spans are made. The caller ends it."""
    if _recorder is None or parent is None or not parent.sampled:
        return None
    return _recorder.begin(name, kind, attributes, parent)


def accept(
    name: str, attributes: Attributes | None = None, *, traceparents: Sequence[str], tracestates: Sequence[str]
) -> Span | None:
    """Enter the trace of a request from outside, given its headers, or a new one; its span when one is made."""
    trace = tracing.parse(traceparents, tracestates)
    if trace is not None:
        span = begin(name, attributes, Kind.SERVER, parent=trace)
    else:
        trace = tracing.begin(ratio=_ratio)
        span = _recorder.begin(name, Kind.SERVER, attributes, None) if _recorder is not None and trace.sampled else None
    tracing.enter(trace if span is None else span.trace)
    return span


@contextmanager
def span(name: str, attributes: Attributes | None = None, kind: Kind = Kind.INTERNAL) -> Iterator[Span | None]:
    """A block's work as a span of the current trace, and what it does as standing under that span."""
    made = begin(name, attributes, kind, parent=tracing.current())
    if made is None:
        yield None
        return
    with made, tracing.within(made.trace):
        yield made


def spanned(name: str) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """A coroutine function each of whose calls is a span of the trace that it is called in: `@spanned("compile")`."""

    def decorate(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(work)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with span(name):
                return await work(*args, **kwargs)

        return call

    return decorate
