"""One caller's connection: frames in, frames out, and the calls that came by it.

Reading is done by one thread at a time (the engines see to that); writing by any, under `lock`. Nothing here
waits: what the socket does not take stays in a backlog that the engine flushes.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from . import PROTOCOL, TYPE_CHECKING, failures, frames, jsontext
from .calls import Call, CallOver, refusal
from .event import CallHead

if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable

    from .instance import Instance

_READ_BYTES = 64 * 1024
_READ_MORE_BYTES = 512 * 1024
_HIGH_BYTES = 1024 * 1024
"""A backlog above this makes streams wait and lines be dropped."""
LINGER_SEC = 1.0
"""How long a caller that was told GOAWAY may take to read it."""


class Connection:
    """See the module. `engine` is told when there is something to write, and when the socket closes."""

    def __init__(self, instance: Instance, socket: socket) -> None:
        self.instance = instance
        self.socket = socket
        self.fd = socket.fileno()
        self.lock = allocate_lock()
        self.calls: dict[int, Call] = {}
        self.role = ""
        self.reading = False
        """A thread is reading; used by the engine, under `lock`."""
        self.closed = False
        self.close_at = float("inf")
        """Monotonic time; set once GOAWAY has been said."""
        self.backlog = 0
        self._out: list[memoryview] = []
        self._frames = frames.FrameReader()
        self._read_bytes = _READ_BYTES
        self._greeted = False
        self._caller_drains = False

    # Reading.

    def receive(self) -> None:
        """Read once from the socket."""
        try:
            data = self.socket.recv(self._read_bytes)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
        elif self.close_at == float("inf"):
            self._read_bytes = _READ_MORE_BYTES if len(data) == self._read_bytes else _READ_BYTES
            self._frames.feed(data)

    def next_call(self) -> Call | None:
        """Handle frames until one completes a call's request: gives that call, or None without more frames."""
        try:
            while not self.closed and self.close_at == float("inf"):
                found = self._frames.next()
                if found is None:
                    return None
                call = self._handle(*found)
                if call is not None and self._starts(call):
                    return call
        except frames.Malformed as error:
            self.go_away("PROTOCOL_ERROR", str(error))
        return None

    @property
    def has_frames(self) -> bool:
        """`next_call` has something to do."""
        return not self.closed and self.close_at == float("inf") and self._frames.has_more

    def _handle(self, kind: int, call_id: int, payload: bytes) -> Call | None:
        if kind == frames.CALL:
            return self._call(call_id, payload)
        if kind in _OF_A_CALL:
            call = self.calls.get(call_id)
            # A call that is over here may not be so for the caller yet: frames for it are late, not wrong.
            return _OF_A_CALL[kind](self, call, payload) if call is not None else None
        if call_id != 0:
            raise frames.Malformed(f"a frame of type {kind} belongs to the connection, not to call {call_id}")
        _OF_THE_CONNECTION[kind](self, payload)
        return None

    def _starts(self, call: Call) -> bool:
        with self.lock:
            call.running = not call.over
            return call.running

    def _call(self, call_id: int, payload: bytes) -> Call | None:
        if not self._greeted or self._caller_drains:
            raise frames.Malformed("a CALL came before HELLO or after DRAIN")
        if call_id == 0 or call_id in self.calls:
            raise frames.Malformed(f"call id {call_id} is 0 or in use")
        head, body = frames.split_call(payload)
        try:
            call = Call(self, call_id, CallHead(head), body)
        except ValueError as error:
            raise frames.Malformed(f"the head of a CALL is not understood: {error}") from None
        if not self.instance.admit(call):
            self.send(refusal(call_id))
            return None
        self.calls[call_id] = call
        self.instance.overseer.notice(call.deadline)
        if call.body_ended:
            return call
        self._grant(call)
        return None

    def _body(self, call: Call, payload: bytes) -> None:
        call.receive(payload)
        self._grant(call)

    def _grant(self, call: Call) -> None:
        if amount := call.due_credit():
            self.send(frames.credit(call.id, amount))

    def _end(self, call: Call, _: bytes) -> Call:
        if call.body_ended:
            raise frames.Malformed("an END came after the end of its call's body")
        call.body_ended = True
        return call

    def _cancel(self, call: Call, _: bytes) -> None:
        call.stop(499, "CANCELLED", "the call was cancelled by its caller")

    def _credit(self, call: Call, payload: bytes) -> None:
        with self.lock:
            call.window += frames.number(payload)
            if call.window > 0xFFFFFFFF:
                raise frames.Malformed("more credit was granted than any body has")
            _wake(call)

    def _hello(self, payload: bytes) -> None:
        hello = _object(payload, "HELLO")
        protocols, role = hello.get("protocol"), hello.get("role")
        if self._greeted or not isinstance(protocols, list) or not isinstance(role, str):
            raise frames.Malformed("a HELLO came twice or without its protocols and its role")
        self._greeted = True
        if self.instance.turned_away is not None:
            self.go_away(*self.instance.turned_away)
            self.instance.told()
        elif PROTOCOL not in protocols:
            self.go_away("PROTOCOL_MISMATCH", f"this instance speaks protocol {PROTOCOL}, not {protocols!r:.100}")
        else:
            self.role = role
            self.send(frames.frame(frames.HELLO, 0, jsontext.encoded(self.instance.hello())))
            self.instance.greeted(self)

    def _goaway(self, _: bytes) -> None:
        self.close()

    def _drain(self, _: bytes) -> None:
        if not self._greeted:
            raise frames.Malformed("a DRAIN came before HELLO")
        self._caller_drains = True
        self._close_when_idle()

    def _ping(self, payload: bytes) -> None:
        self.send(frames.frame(frames.PONG, 0, payload))

    def _pong(self, _: bytes) -> None:
        """Nothing here asks for it yet; a caller may still say it."""

    # Writing.

    def send(self, data: bytes) -> None:
        """Frames that belong to no call, or to one that was never begun."""
        with self.lock:
            self._write(data)

    def send_droppable(self, data: bytes) -> None:
        """Unattributed lines: dropped when the reader is too slow."""
        with self.lock:
            if self.backlog < _HIGH_BYTES:
                self._write(data)

    def send_lines(self, call: Call) -> None:
        """The lines that a call has printed so far."""
        with self.lock:
            if not call.over:
                self._write(call.log_frames(last=False, droppable=self.backlog > _HIGH_BYTES))

    def begin(self, call: Call, reply: bytes, size: int) -> None:
        """The REPLY of an answer that goes on, with `size` bytes of its body. Raises CallOver."""
        with self.lock:
            if call.over:
                raise CallOver
            call.begun = True
            call.window -= size
            self._write(reply)

    def send_body(self, call: Call, data: memoryview, waker: Callable[[], object]) -> int:
        """As much of `data` as may be sent now, in one frame; gives its size.

        0: `waker` will be called once, when it is worth trying again. Raises CallOver.
        """
        with self.lock:
            if call.over:
                raise CallOver
            size = min(len(data), call.window, frames.MAX_BODY) if self.backlog < _HIGH_BYTES else 0
            if size == 0:
                call.waker = waker
                return 0
            call.window -= size
            self._write(frames.frame(frames.BODY, call.id, data[:size]))
            return size

    def finish(self, call: Call, frame: bytes, *, free: bool) -> bool:
        """The call's last frame, after what it has printed; False when the call is over already.

        `free`: the handler is done, so that the caller may send another call as soon as it reads the frame.
        """
        with self.lock:
            if call.over:
                return False
            lines = call.log_frames(last=True, droppable=self.backlog > _HIGH_BYTES)
            call.over = True
            self.calls.pop(call.id, None)
            if free:
                self.instance.release(call)
            self._write(lines + frame if lines else frame)
            _wake(call)
        if self._caller_drains:
            self._close_when_idle()
        return True

    def flush(self) -> None:
        """Write what waits, as far as the socket takes it."""
        with self.lock:
            while self._out and not self.closed:
                sent = self._try(self._out[0])
                self.backlog -= sent
                if sent < len(self._out[0]):
                    self._out[0] = self._out[0][sent:]
                    break
                del self._out[0]
            if self.backlog < _HIGH_BYTES:
                for call in self.calls.values():
                    _wake(call)
            self._shut_when_said()

    def _write(self, data: bytes) -> None:
        if not data or self.closed or self.close_at != float("inf"):
            return
        sent = 0 if self._out else self._try(data)
        if sent < len(data):
            self._out.append(memoryview(data)[sent:])
            self.backlog += len(data) - sent
            self.instance.engine.want_write(self)

    def _try(self, data: bytes | memoryview) -> int:
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # The caller is gone; reading will find that out and close.

    # The end.

    def go_away(self, reason: str, message: str, detail: str = "") -> None:
        """Say why and read nothing more; the socket closes when the caller has closed its side, or soon."""
        payload = jsontext.encoded({"reason": reason, "message": message, "detail": detail})
        with self.lock:
            self._write(frames.frame(frames.GOAWAY, 0, payload))
            self.close_at = min(self.close_at, time.monotonic() + LINGER_SEC)
            self._shut_when_said()
        self.instance.overseer.notice(self.close_at)
        self._abandon_calls()

    def hang_up(self) -> None:
        """Make the reading thread find the end of the connection; only that thread may close the socket."""
        with self.lock:
            if not self.closed:
                self._shut(2)

    def close(self) -> None:
        """Close now; calls that still run are abandoned. For the reading thread."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self.instance.engine.forget(self)
            self.socket.close()
        self._abandon_calls()
        self.instance.left(self)

    def fault(self, error: Exception) -> None:
        """This package has failed: say so where the launcher reads it, and end this connection alone."""
        os.write(2, failures.full_traceback(error).encode("utf-8", "backslashreplace"))
        self.close()

    def drain(self) -> None:
        """Tell the caller to send no more calls."""
        if self._greeted:
            self.send(frames.frame(frames.DRAIN, 0))

    def _close_when_idle(self) -> None:
        if not self.calls:
            self.go_away("DRAINED", "both sides have finished")

    def _shut_when_said(self) -> None:
        if self.close_at != float("inf") and not self._out and not self.closed:
            self._shut(1)

    def _shut(self, how: int) -> None:
        try:
            self.socket.shutdown(how)
        except OSError:
            return  # The caller is gone; reading will find that out and close.

    def _abandon_calls(self) -> None:
        with self.lock:
            calls = [call for call in self.calls.values() if not call.over]
            for call in calls:
                call.over = True
                if not call.running:
                    self.instance.release(call)
                _wake(call)
            self.calls.clear()
        for call in calls:
            call.abandon()


def _wake(call: Call) -> None:
    waker, call.waker = call.waker, None
    if waker is not None:
        waker()


def _object(payload: bytes, name: str) -> dict[str, object]:
    try:
        value = jsontext.loads(payload.decode())
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise frames.Malformed(f"the payload of a {name} is no JSON object")
    return value


_OF_A_CALL: dict[int, Callable[[Connection, Call, bytes], Call | None]] = {
    frames.BODY: Connection._body,
    frames.END: Connection._end,
    frames.CANCEL: Connection._cancel,
    frames.CREDIT: Connection._credit,
}
_OF_THE_CONNECTION: dict[int, Callable[[Connection, bytes], None]] = {
    frames.HELLO: Connection._hello,
    frames.GOAWAY: Connection._goaway,
    frames.DRAIN: Connection._drain,
    frames.PING: Connection._ping,
    frames.PONG: Connection._pong,
}
