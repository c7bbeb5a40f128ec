"""What a handler is told of the trace that its call belongs to, and the span that stands for it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final

from sless_calls.heads import HeaderList
from sless_platform import telemetry, tracing
from sless_platform.telemetry import Kind, Span
from sless_platform.tracing import TRACEPARENT, TRACESTATE, Trace

from sless_invoker.domain import Call, Reply, Target

_NOTHING: Final = nullcontext()
_OURS: Final = frozenset({TRACEPARENT, TRACESTATE})


def function(
    call: Call, target: Target, *, version: int, attempt: int, cold: bool
) -> AbstractContextManager[Span | None]:
    """A block as the span of the function itself, when one is made; what the handler begins stands under it."""
    parent = tracing.current()
    if not telemetry.wanted(parent):
        return _NOTHING
    span = telemetry.begin(
        f"{target.kind.value} {target.name}",
        {
            "faas.name": target.name,
            "faas.version": str(version),
            "faas.trigger": "http",
            "faas.invocation_id": call.invocation_id,
            "faas.coldstart": cold,
            "sless.namespace": target.namespace,
            "sless.version": version,
            "sless.trigger": call.trigger.value,
            "sless.request_id": call.request_id,
            "sless.attempt": attempt,
        },
        Kind.SERVER,
        parent=parent,
    )
    return span or _NOTHING


def note(span: Span, reply: Reply) -> None:
    """How the handler answered; where that is all, the span ends here, not when the answer has been passed on."""
    span.note({"http.response.status_code": reply.status})
    if reply.handler_duration is not None:
        span.note({"sless.handler_ms": reply.handler_duration.total_seconds() * 1000})
    if reply.status >= 500:
        span.fail(str(reply.status))
    if reply.complete:
        span.end()


def told(headers: tuple[tuple[str, str], ...], trace: Trace | None) -> HeaderList:
    """The call's headers with the trace as it is here: who takes part in a trace sends it on as its own (W3C Trace Context, §3.5)."""
    sent = [field for field in headers if field[0].lower() not in _OURS]
    if trace is not None:
        sent.append((TRACEPARENT, trace.traceparent))
        if trace.tracestate:
            sent.append((TRACESTATE, trace.tracestate))
    return sent
