"""Typed errors ↔ google.rpc.Status (google.aip.dev/193): one table, both ways.

A status carries one ErrorInfo (reason, domain, metadata), a BadRequest when one field is at fault, a RetryInfo when it is known when to
try again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from sless_platform.errors import Kind, PlatformError, class_of

DETAILS_KEY: Final = "grpc-status-details-bin"
DEFAULT_DOMAIN: Final = "platform"

# A status travels in HTTP/2 headers, which are bounded; the message travels twice and percent-encoded.
MAX_MESSAGE_CHARACTERS: Final = 2000
MAX_METADATA_CHARACTERS: Final = 1000

CODES: Final[dict[Kind, grpc.StatusCode]] = {kind: grpc.StatusCode[kind.value] for kind in Kind}
KINDS: Final[dict[grpc.StatusCode, Kind]] = {
    **{code: kind for kind, code in CODES.items()},
    # Codes that no service of ours sends: a peer or a proxy that is broken.
    grpc.StatusCode.UNKNOWN: Kind.INTERNAL,
    grpc.StatusCode.DATA_LOSS: Kind.INTERNAL,
}


def code_of(error: PlatformError) -> grpc.StatusCode:
    """The gRPC code of an error."""
    return CODES[error.kind]


def to_status(error: PlatformError, domain: str = DEFAULT_DOMAIN) -> Status:
    """The error as a google.rpc.Status; over-long texts are shortened in their middle."""
    message = _shortened(error.message, MAX_MESSAGE_CHARACTERS)
    status = Status(code=code_of(error).value[0], message=message)
    facts = {key: _shortened(value, MAX_METADATA_CHARACTERS) for key, value in error.metadata.items()}
    status.details.add().Pack(ErrorInfo(reason=error.reason, domain=domain, metadata=facts))
    if error.field is not None:
        violation = BadRequest.FieldViolation(field=error.field, description=message)
        status.details.add().Pack(BadRequest(field_violations=[violation]))
    if error.retry_after is not None:
        delay = Duration()
        delay.FromTimedelta(error.retry_after)
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return status


def to_trailing_metadata(status: Status) -> tuple[tuple[str, bytes], ...]:
    """The metadata in which gRPC carries a status with details."""
    return ((DETAILS_KEY, status.SerializeToString()),)


def from_status(status: Status) -> PlatformError:
    """The error that a status tells of; its class is that of its kind in sless_platform.errors."""
    code = next((code for code in grpc.StatusCode if code.value[0] == status.code), grpc.StatusCode.UNKNOWN)
    kind = KINDS.get(code, Kind.INTERNAL)
    info, bad_request, retry = ErrorInfo(), BadRequest(), RetryInfo()
    for detail in status.details:
        for message in (info, bad_request, retry):
            detail.Unpack(message)
    violations = bad_request.field_violations
    return class_of(kind)(
        status.message,
        field=violations[0].field if violations else None,
        retry_after=retry.retry_delay.ToTimedelta() if retry.HasField("retry_delay") else None,
        metadata=dict(info.metadata),
        reason=info.reason or None,
    )


def from_rpc_error(error: grpc.aio.AioRpcError, method: str) -> PlatformError:
    """The error that a call to `method` (`/package.Service/Method`) ended with."""
    return from_outcome(error.code(), error.details() or "", error.trailing_metadata() or (), method)


def from_outcome(
    code: grpc.StatusCode, details: str, trailing: Iterable[tuple[str, str | bytes]], method: str
) -> PlatformError:
    """As from_rpc_error, from a call's code, details and trailing metadata."""
    status = _sent_status(trailing)
    if status is not None and status.code == code.value[0]:
        return from_status(status)
    # Nobody here cancelled it and no servicer said so: that is how a server that is stopping drops a call.
    kind = Kind.UNAVAILABLE if code is grpc.StatusCode.CANCELLED else KINDS.get(code, Kind.INTERNAL)
    return class_of(kind)(_own_sentence(kind, method) or details or f"{method} failed: {kind.value}")


def _sent_status(trailing: Iterable[tuple[str, str | bytes]]) -> Status | None:
    for key, value in trailing:
        if key == DETAILS_KEY and isinstance(value, bytes):
            try:
                return Status.FromString(value)
            except DecodeError:
                return None
    return None


def _own_sentence(kind: Kind, method: str) -> str | None:
    """For what gRPC itself reports: its texts name addresses and C++ files, which are nothing for a caller."""
    service = method.strip("/").partition("/")[0]
    if kind is Kind.UNAVAILABLE:
        return f"{service} cannot be reached now; try again"
    if kind is Kind.DEADLINE_EXCEEDED:
        return f"{service} did not answer in time"
    return None


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
