"""Frames of the instance protocol: constants, encoding, and a parser that trusts nothing.

The reference is runtimes/contract/README.md. A frame is `u32` length of what follows, `u8` type,
`u32` call id, payload; big-endian.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from sless_calls.errors import ProtocolError

PROTOCOL: Final = 1

HELLO: Final = 1
GOAWAY: Final = 2
CALL: Final = 3
REPLY: Final = 4
BODY: Final = 5
END: Final = 6
LOG: Final = 7
CANCEL: Final = 8
CREDIT: Final = 9
DRAIN: Final = 10
PING: Final = 11
PONG: Final = 12

MAX_HEAD: Final = 512 * 1024
MAX_BODY: Final = 256 * 1024
MAX_LENGTH: Final = MAX_HEAD + MAX_BODY + 16
WINDOW: Final = 1024 * 1024
"""Bytes of body that may be outstanding a call and direction, the first ones included."""

_FRAME: Final = Struct(">IBI")
_HEADED: Final = Struct(">IBII")
_U32: Final = Struct(">I")
HEADED_SIZE: Final = _HEADED.size

# type → (least, greatest) payload in bytes; index 0 is no type.
_PAYLOADS: Final = (
    (1, 0),
    (2, MAX_HEAD),  # HELLO
    (2, MAX_HEAD),  # GOAWAY
    (6, 4 + MAX_HEAD + MAX_BODY),  # CALL
    (6, 4 + MAX_HEAD + MAX_BODY),  # REPLY
    (0, MAX_BODY),  # BODY
    (0, 0),  # END
    (2, MAX_HEAD),  # LOG
    (0, 0),  # CANCEL
    (4, 4),  # CREDIT
    (0, 0),  # DRAIN
    (8, 8),  # PING
    (8, 8),  # PONG
)


def frame(kind: int, call_id: int, payload: bytes | memoryview = b"") -> bytes:
    """One whole frame."""
    return b"".join((_FRAME.pack(5 + len(payload), kind, call_id), payload))


def credit_frame(call_id: int, amount: int) -> bytes:
    """CREDIT for `amount` bytes."""
    return _HEADED.pack(9, CREDIT, call_id, amount)


def fill_headed(buffer: bytearray, kind: int, call_id: int, head_length: int) -> None:
    """Write the start of a CALL or REPLY into the first `HEADED_SIZE` bytes of a complete frame."""
    _HEADED.pack_into(buffer, 0, len(buffer) - 4, kind, call_id, head_length)


def split_headed(payload: bytes) -> tuple[bytes, bytes]:
    """The head and the first body bytes of a CALL or REPLY."""
    (length,) = _U32.unpack_from(payload)
    stop = 4 + length
    if length > MAX_HEAD or stop > len(payload) or len(payload) - stop > MAX_BODY:
        raise ProtocolError(f"a head of {length} bytes does not fit its frame of {len(payload)} bytes")
    return payload[4:stop], payload[stop:]


def credit_of(payload: bytes) -> int:
    """The bytes that a CREDIT grants."""
    (amount,) = _U32.unpack(payload)
    return int(amount)


class FrameParser:
    """Cuts a byte stream into frames and hands each to `sink(type, call_id, payload)`.

    `feed` raises `ProtocolError` for a length or type that the protocol does not know; nothing may be
    fed after that. What the sink raises passes through.
    """

    __slots__ = ("_needed", "_rest", "_sink")

    def __init__(self, sink: Callable[[int, int, bytes], None]) -> None:
        self._sink = sink
        self._rest = bytearray()
        self._needed = 0

    def feed(self, data: bytes) -> None:
        """Take bytes as they came, in pieces of any size."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest = bytearray()
        offset, size = 0, len(data)
        while True:
            if size - offset < 9:
                self._needed = 9
                break
            length, kind, call_id = _FRAME.unpack_from(data, offset)
            _check(length, kind)
            stop = offset + 4 + length
            if stop > size:
                self._needed = 4 + length
                break
            self._sink(kind, call_id, data[offset + 9 : stop])
            offset = stop
        if offset < size:
            self._rest += data[offset:]


def _check(length: int, kind: int) -> None:
    if not 1 <= kind <= PONG:
        raise ProtocolError(f"frame type {kind} is unknown to protocol {PROTOCOL}")
    least, greatest = _PAYLOADS[kind]
    if not least <= length - 5 <= greatest:
        raise ProtocolError(f"a frame of type {kind} cannot have {length} bytes")
