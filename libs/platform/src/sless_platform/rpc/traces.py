"""Traces of calls: taken from and put into metadata, and the spans of both sides where they are made.

Own code instead of OpenTelemetry's interceptors: those cost a task a call, and objects whether a trace is sampled or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc

from sless_platform import telemetry, tracing
from sless_platform.errors import PlatformError
from sless_platform.rpc.credentials import Metadata
from sless_platform.rpc.status import code_of
from sless_platform.telemetry import Kind, Span
from sless_platform.tracing import TRACEPARENT, TRACESTATE, Trace

_STATUS: Final = "rpc.grpc.status_code"
_SERVERS_FAULT: Final = frozenset(
    grpc.StatusCode[name]
    for name in ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
)
"""Codes that OpenTelemetry's conventions count as errors of a server; the others tell the caller of its own."""


class TracedMethod:
    """One RPC, `/package.Service/Method`."""

    def __init__(self, method: str) -> None:
        self._name = method.removeprefix("/")
        service, _, name = self._name.rpartition("/")
        self._attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}

    def accept(self, sent: Metadata, metadata: Mapping[str, str | bytes]) -> Span | None:
        """Enter the trace that a caller sent; its span when one is made.

        Who comes with a bearer token comes from outside: where such a caller sent no trace, one begins. What our services do on
        their own account, and what they watch for hours, belongs to no trace unless they say so.
        """
        if TRACEPARENT not in metadata and "authorization" not in metadata:
            tracing.enter(None)
            return None
        return telemetry.accept(
            self._name,
            self._attributes,
            traceparents=[value for key, value in sent if key == TRACEPARENT and isinstance(value, str)],
            tracestates=[value for key, value in sent if key == TRACESTATE and isinstance(value, str)],
        )

    def calling(self) -> Span | None:
        """The span of a call that is about to be made, when one is made."""
        return telemetry.begin(self._name, self._attributes, Kind.CLIENT, parent=tracing.current())


def metadata_of(trace: Trace) -> list[tuple[str, str]]:
    """The metadata that tells a trace."""
    told = [(TRACEPARENT, trace.traceparent)]
    return [*told, (TRACESTATE, trace.tracestate)] if trace.tracestate else told


def answered(span: Span, error: PlatformError | None) -> None:
    """A server's call ended so."""
    code = grpc.StatusCode.OK if error is None else code_of(error)
    span.note({_STATUS: code.value[0]})
    if error is not None and code in _SERVERS_FAULT:
        span.fail_with(error)


def end_with(span: Span, call: Any) -> None:
    """End the span of a grpc.aio call when that is over."""
    call.add_done_callback(lambda over: _ended(span, over))


def _ended(span: Span, call: Any) -> None:
    code = _status_of(call)
    span.note({_STATUS: code.value[0]})
    if code is not grpc.StatusCode.OK:
        span.fail(code.name)
    span.end()


def _status_of(call: Any) -> grpc.StatusCode:
    """The code of a call that is over: `code()` has nothing to wait for then."""
    try:
        call.code().send(None)
    except StopIteration as done:
        code: grpc.StatusCode = done.value
        return code
    return grpc.StatusCode.UNKNOWN
