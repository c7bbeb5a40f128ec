"""One connection to the launcher."""

from __future__ import annotations

import socket

from .protocol import MAX_LINE, encode

_READ_BYTES = 64 << 10
_OUTPUT_PENDING = 1 << 20
_ANY_PENDING = 64 << 20


class Client:
    """Reads requests, keeps what the peer has not read yet. Output of instances is dropped and counted when that becomes much;
    answers and ends never are, but a peer that reads nothing at all is let go."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.following = False
        self.closed = False
        self._received = b""
        self._pending = bytearray()
        self._dropped: dict[str, int] = {}

    @property
    def waits(self) -> bool:
        """Whether there is something left to send."""
        return bool(self._pending)

    def receive(self) -> list[bytes]:
        """Complete lines that have come; sets `closed` at the end, on an error, and for a line without end."""
        try:
            chunk = self.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.closed = True
            return []
        *lines, self._received = (self._received + chunk).split(b"\n")
        if len(self._received) > MAX_LINE:
            self.closed = True
        return lines

    def send(self, message: dict[str, object]) -> None:
        """Send, or keep until the peer reads."""
        self._pending += encode(message)
        self.flush()
        if len(self._pending) > _ANY_PENDING:
            self.closed = True

    def send_output(self, instance_id: str, stream: str, text: str | None, size: int) -> None:
        """An `output` event of `size` bytes; dropped and counted without `text`, or when much is pending."""
        if text is None or len(self._pending) > _OUTPUT_PENDING:
            self._dropped[instance_id] = self._dropped.get(instance_id, 0) + size
            return
        dropped = self._dropped.pop(instance_id, 0)
        about = {"event": "output", "instance_id": instance_id, "stream": stream}
        self.send({**about, "text": text, "dropped": dropped})

    def forget_output(self, instance_id: str) -> int:
        """Bytes of the instance's output that were dropped and not told yet; it prints no more."""
        return self._dropped.pop(instance_id, 0)

    def flush(self) -> None:
        """Send as much as the peer takes."""
        try:
            while self._pending:
                sent = self.connection.send(self._pending)
                del self._pending[:sent]
        except BlockingIOError:
            return
        except OSError:
            self.closed = True
