"""Frames of the instance protocol: constants, encoding, and a parser that trusts nothing.

The reference is runtimes/contract/README.md. A frame is `u32` length of what follows, `u8` type,
`u32` call id, payload; big-endian.
"""

from __future__ import annotations

from struct import Struct

HELLO, GOAWAY, CALL, REPLY, BODY, END, LOG, CANCEL, CREDIT, DRAIN, PING, PONG = range(1, 13)

MAX_HEAD = 512 * 1024
MAX_BODY = 256 * 1024
MAX_LENGTH = MAX_HEAD + MAX_BODY + 16
WINDOW = 1024 * 1024

_FRAME = Struct(">IBI")
_HEADED = Struct(">IBII")
_U32 = Struct(">I")

# type → (least, greatest) payload in bytes of what a caller may send; REPLY and LOG are ours alone.
_PAYLOADS = {
    HELLO: (2, MAX_HEAD),
    GOAWAY: (2, MAX_HEAD),
    CALL: (6, 4 + MAX_HEAD + MAX_BODY),
    BODY: (0, MAX_BODY),
    END: (0, 0),
    CANCEL: (0, 0),
    CREDIT: (4, 4),
    DRAIN: (0, 0),
    PING: (8, 8),
    PONG: (8, 8),
}


class Malformed(Exception):
    """The caller broke the protocol: a sentence. Its connection ends; nothing else does."""


def frame(kind: int, call_id: int, payload: bytes | memoryview = b"") -> bytes:
    """One whole frame."""
    return b"".join((_FRAME.pack(5 + len(payload), kind, call_id), payload))


def reply(call_id: int, head: bytes, body: bytes | memoryview) -> bytes:
    """A REPLY with its head in JSON and the first bytes of its body."""
    return b"".join((_HEADED.pack(9 + len(head) + len(body), REPLY, call_id, len(head)), head, body))


def credit(call_id: int, amount: int) -> bytes:
    """CREDIT for `amount` bytes."""
    return _HEADED.pack(9, CREDIT, call_id, amount)


def number(payload: bytes) -> int:
    """The number that a CREDIT is."""
    (value,) = _U32.unpack(payload)
    return int(value)


def split_call(payload: bytes) -> tuple[bytes, bytes]:
    """The head and the first body bytes of a CALL."""
    (length,) = _U32.unpack_from(payload)
    stop = 4 + length
    if length > MAX_HEAD or stop > len(payload) or len(payload) - stop > MAX_BODY:
        raise Malformed(f"a head of {length} bytes does not fit its frame of {len(payload)} bytes")
    return payload[4:stop], payload[stop:]


class FrameReader:
    """Cuts a byte stream into frames: `feed` bytes as they come, then ask `next` until it gives None."""

    __slots__ = ("_data", "_offset")

    def __init__(self) -> None:
        self._data: bytes | bytearray = b""
        self._offset = 0

    def feed(self, data: bytes) -> None:
        """Add what was received."""
        if self._offset == len(self._data):
            self._data = data
        elif isinstance(self._data, bytearray) and not self._offset:
            self._data += data
        else:
            self._data = bytearray(self._data[self._offset :]) + data
        self._offset = 0

    def next(self) -> tuple[int, int, bytes] | None:
        """The next frame's type, call id and payload, or None until more is fed. Raises Malformed."""
        data, offset = self._data, self._offset
        if len(data) - offset < 9:
            return None
        length, kind, call_id = _FRAME.unpack_from(data, offset)
        least, greatest = _PAYLOADS.get(kind, (1, 0))
        if not least <= length - 5 <= greatest:
            raise Malformed(f"a caller cannot send a frame of type {kind} with {length} bytes")
        stop = offset + 4 + length
        if stop > len(data):
            return None
        self._offset = stop
        if type(data) is bytes:
            return kind, call_id, data[offset + 9 : stop]
        return kind, call_id, bytes(memoryview(data)[offset + 9 : stop])

    @property
    def has_more(self) -> bool:
        """`next` would give a frame, or raise."""
        data, offset = self._data, self._offset
        if len(data) - offset < 9:
            return False
        length, _, _ = _FRAME.unpack_from(data, offset)
        return bool(length > MAX_LENGTH or offset + 4 + length <= len(data))
