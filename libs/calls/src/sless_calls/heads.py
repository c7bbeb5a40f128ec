"""The JSON heads of the instance protocol, and what is encoded from them."""

from typing import Final, TypeVar

import msgspec

from sless_calls import frames
from sless_calls.errors import ProtocolError

HeaderList = list[tuple[str, str]]
_T = TypeVar("_T")


class CallHead(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What an instance is told about a call, beside its body."""

    id: str
    """Invocation id; also the request id unless `request_id` says otherwise."""
    method: str = "POST"
    path: str = "/"
    """Sub-path below the function's URL as it came, percent-encoded, beginning with `/`."""
    query: str = ""
    """Query string as it came, without `?`."""
    headers: HeaderList = []
    """Names and values in their order, duplicates kept; hop-by-hop ones already taken out."""
    deadline_ms: int | None = None
    """Milliseconds that the call may take from the moment the instance has it; None: no limit."""
    traceparent: str | None = None
    trigger: str = "http"
    """`http`, `invoke`, `cron`, `event`, `async` or `job`."""
    attempt: int = 1
    request_id: str | None = None
    schedule_time: str | None = None
    """RFC 3339; the tick of a cron call."""


class ReplyError(msgspec.Struct, frozen=True):
    """Why a call failed: the exception's type and its message."""

    type: str = ""
    message: str = ""


class ReplyHead(msgspec.Struct, frozen=True):
    """The head of an answer."""

    status: int
    """HTTP status, 200–599 (499: cancelled by the caller)."""
    headers: HeaderList = []
    end: bool = False
    """The body is complete with `Call.first_body`."""
    error: ReplyError | None = None
    retry: bool = False
    handler_ms: float | None = None
    """Milliseconds spent in the handler."""


class InstanceHello(msgspec.Struct, frozen=True):
    """How an instance introduces itself, once the user's code is loaded."""

    protocol: int
    runtime: str = ""
    function: str = ""
    version: int = 0
    instance: str = ""
    max_concurrency: int = 1


class GoAway(msgspec.Struct, frozen=True):
    """Why the other side ends the connection."""

    reason: str = ""
    message: str = ""
    detail: str = ""


class LogLine(msgspec.Struct, frozen=True):
    """One line that a handler printed."""

    ts: int
    """Milliseconds since the Unix epoch."""
    stream: str
    """`stdout` or `stderr`."""
    level: str
    """`info` or `error`."""
    text: str


class _CallerHello(msgspec.Struct):
    protocol: list[int]
    role: str


_encoder: Final = msgspec.json.Encoder()
_reply_decoder: Final = msgspec.json.Decoder(ReplyHead)
_hello_decoder: Final = msgspec.json.Decoder(InstanceHello)
_goaway_decoder: Final = msgspec.json.Decoder(GoAway)
_log_decoder: Final = msgspec.json.Decoder(list[LogLine])


def encode_call(call_id: int, head: CallHead, body: bytes, *, end: bool) -> bytearray:
    """One CALL frame. Raises ValueError when the head is larger than the protocol allows."""
    buffer = bytearray(frames.HEADED_SIZE)
    try:
        _encoder.encode_into(head, buffer, frames.HEADED_SIZE)
    except UnicodeEncodeError:
        _encoder.encode_into(_without_surrogates(head), buffer, frames.HEADED_SIZE)
    # `end` is the last member, so that a head can be encoded before it is known where its body ends.
    buffer[-1:] = b',"end":true}' if end else b',"end":false}'
    head_length = len(buffer) - frames.HEADED_SIZE
    if head_length > frames.MAX_HEAD:
        raise ValueError(f"the head of a call may have {frames.MAX_HEAD} bytes, not {head_length}")
    buffer += body
    frames.fill_headed(buffer, frames.CALL, call_id, head_length)
    return buffer


def encode_hello(role: str) -> bytes:
    """The caller's HELLO."""
    hello = _CallerHello(protocol=[frames.PROTOCOL], role=role)
    return frames.frame(frames.HELLO, 0, _encoder.encode(hello))


def encode_goaway(reason: str, message: str) -> bytes:
    """GOAWAY from the caller."""
    return frames.frame(frames.GOAWAY, 0, _encoder.encode(GoAway(reason=reason, message=message)))


def decode_reply(payload: bytes) -> tuple[ReplyHead, bytes]:
    """Head and first body bytes of a REPLY."""
    head, body = frames.split_headed(payload)
    reply = _decode(_reply_decoder, head, "REPLY")
    if not 200 <= reply.status <= 599:
        raise ProtocolError(f"a REPLY has status {reply.status}")
    return reply, body


def decode_hello(payload: bytes) -> InstanceHello:
    """The instance's HELLO."""
    return _decode(_hello_decoder, payload, "HELLO")


def decode_goaway(payload: bytes) -> GoAway:
    """GOAWAY from the instance."""
    return _decode(_goaway_decoder, payload, "GOAWAY")


def decode_log(payload: bytes) -> list[LogLine]:
    """The lines of a LOG."""
    return _decode(_log_decoder, payload, "LOG")


def _decode(decoder: msgspec.json.Decoder[_T], data: bytes, name: str) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the JSON of a {name} is not understood: {error}") from error


def _without_surrogates(head: CallHead) -> CallHead:
    """Header bytes that are no UTF-8 reach us as lone surrogates, which JSON cannot carry."""

    def clean(text: str) -> str:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    headers = [(clean(name), clean(value)) for name, value in head.headers]
    return msgspec.structs.replace(head, headers=headers, path=clean(head.path), query=clean(head.query))
