"""A small blocking client of the instance protocol, written from the reference and from nothing else."""

import contextlib
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

HELLO, GOAWAY, CALL, REPLY, BODY, END, LOG, CANCEL, CREDIT, DRAIN, PING, PONG = range(1, 13)
KINDS = range(HELLO, PONG + 1)
WINDOW = 1024 * 1024
MAX_BODY = 256 * 1024


class Closed(Exception):
    """The instance has closed the connection."""


@dataclass
class Frame:
    """One frame as it came."""

    kind: int
    call_id: int
    payload: bytes

    def json(self) -> Any:
        """The payload's JSON."""
        return json.loads(self.payload)

    def head(self) -> Any:
        """The head of a REPLY."""
        (length,) = struct.unpack_from(">I", self.payload)
        return json.loads(self.payload[4 : 4 + length])

    def first_body(self) -> bytes:
        """The first body bytes of a REPLY."""
        (length,) = struct.unpack_from(">I", self.payload)
        return self.payload[4 + length :]


@dataclass
class Answer:
    """All that came for one call."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    head: dict[str, Any]
    logs: list[dict[str, Any]] = field(default_factory=list)
    cut: dict[str, Any] | None = None
    """The head of a second REPLY, which ends a body with an error."""

    def json(self) -> Any:
        """The body's JSON."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """The value of a header that occurs at most once."""
        values = [value for key, value in self.headers if key.lower() == name]
        assert len(values) <= 1
        return values[0] if values else None

    def lines(self) -> list[str]:
        """The texts that were printed."""
        return [line["text"] for line in self.logs]


def frame(kind: int, call_id: int = 0, payload: bytes = b"") -> bytes:
    """A frame's bytes."""
    return struct.pack(">IBI", 5 + len(payload), kind, call_id) + payload


def call_frame(call_id: int, body: bytes = b"", **head: Any) -> bytes:
    """A CALL's bytes; `end` is true unless given."""
    text = json.dumps({"id": f"call-{call_id}", "end": True, **head}).encode()
    return frame(CALL, call_id, struct.pack(">I", len(text)) + text + body)


class Client:
    """One connection. Every wait ends after `timeout` seconds with TimeoutError."""

    def __init__(
        self, path: str, *, role: str = "gateway", timeout: float = 15, greet: bool = True, receive_buffer: int = 0
    ) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._timeout = timeout
        self._data = b""
        self._frames: deque[Frame] = deque()
        self._ids = 0
        self.socket.settimeout(timeout)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(path)
        self.greeting: dict[str, Any] = {}
        if greet:
            self.send(HELLO, payload=json.dumps({"protocol": [1], "role": role}).encode())
            self.greeting = self.wait(lambda found: found.kind == HELLO).json()

    @property
    def socket(self) -> socket.socket:
        """The socket itself."""
        return self._socket

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, kind: int, call_id: int = 0, payload: bytes = b"") -> None:
        """Send one frame."""
        self.send_raw(frame(kind, call_id, payload))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def begin(self, body: bytes = b"", **head: Any) -> int:
        """Send a CALL; gives its id."""
        self._ids += 1
        self.send_raw(call_frame(self._ids, body, **head))
        return self._ids

    def upload(self, body: bytes, **head: Any) -> int:
        """A CALL whose body is sent in BODY frames as credit allows."""
        first, rest = body[:MAX_BODY], body[MAX_BODY:]
        call_id = self.begin(first, end=False, **head)
        window = WINDOW - len(first)
        while rest:
            while window == 0:
                credit = self.wait(lambda found: found.kind == CREDIT and found.call_id == call_id)
                window += struct.unpack(">I", credit.payload)[0]
            size = min(len(rest), window, MAX_BODY)
            self.send(BODY, call_id, rest[:size])
            rest, window = rest[size:], window - size
        self.send(END, call_id)
        return call_id

    def call(self, event: Any = None, *, body: bytes | None = None, **head: Any) -> Answer:
        """Send a plain call with a JSON event (or raw body) and wait for its whole answer."""
        if body is None:
            body = b"" if event is None else json.dumps(event).encode()
            head.setdefault("headers", [["content-type", "application/json"]])
        return self.answer(self.begin(body, **head))

    def answer(self, call_id: int, *, credit: bool = True) -> Answer:
        """Wait for all of one call's answer, granting credit for what has come unless told otherwise."""
        logs: list[dict[str, Any]] = []
        body: list[bytes] = []
        head: dict[str, Any] | None = None
        while True:
            found = self.wait(lambda one: one.call_id == call_id and one.kind != CREDIT)
            if found.kind == LOG:
                logs += found.json()
                continue
            if found.kind == REPLY and head is not None:
                assert found.head()["end"], "a second REPLY must end its call"
                return _answer(head, body, logs, found.head())
            if found.kind == REPLY:
                head = found.head()
                body.append(found.first_body())
            elif found.kind == BODY:
                body.append(found.payload)
            if found.kind == END or (found.kind == REPLY and found.head()["end"]):
                assert head is not None, "END came before REPLY"
                return _answer(head, body, logs, None)
            if credit and body[-1]:
                self.send(CREDIT, call_id, struct.pack(">I", len(body[-1])))

    def wait(self, wanted: Callable[[Frame], bool]) -> Frame:
        """The first frame that `wanted` accepts; others stay for later waits. Raises Closed at the end."""
        for index, found in enumerate(self._frames):
            if wanted(found):
                del self._frames[index]
                return found
        limit = time.monotonic() + self._timeout
        while True:
            found = self._next(limit)
            if wanted(found):
                return found
            self._frames.append(found)

    def ping(self) -> None:
        """A round trip: whatever was sent before it has been read by the instance, and its frames are here."""
        payload = struct.pack(">Q", time.monotonic_ns())
        self.send(PING, payload=payload)
        self.wait(lambda found: found.kind == PONG and found.payload == payload)

    def pending(self) -> list[Frame]:
        """Frames that came and that nobody has waited for."""
        return list(self._frames)

    def until_closed(self) -> list[Frame]:
        """Read until the instance closes; gives all frames that nobody has waited for."""
        with contextlib.suppress(Closed, ConnectionResetError):
            self.wait(lambda _: False)
        return list(self._frames)

    def _next(self, limit: float) -> Frame:
        while True:
            if len(self._data) >= 4:
                (length,) = struct.unpack_from(">I", self._data)
                assert 5 <= length <= 768 * 1024 + 16, f"an instance sent a frame of {length} bytes"
                if len(self._data) >= 4 + length:
                    kind, call_id = struct.unpack_from(">BI", self._data, 4)
                    payload, self._data = self._data[9 : 4 + length], self._data[4 + length :]
                    assert kind in KINDS, f"an instance sent a frame of type {kind}"
                    return Frame(kind, call_id, payload)
            self._socket.settimeout(max(0.001, limit - time.monotonic()))
            data = self._socket.recv(1 << 20)
            if not data:
                raise Closed
            self._data += data


def _answer(head: dict[str, Any], body: list[bytes], logs: list[dict[str, Any]], cut: dict[str, Any] | None) -> Answer:
    headers = [(name, value) for name, value in head["headers"]]
    return Answer(head["status"], headers, b"".join(body), head, logs, cut)
