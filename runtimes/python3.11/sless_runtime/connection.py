"""One caller's connection: its socket, the calls that came by it, and what is written to it.

Reading is done by one thread at a time (the engines see to that), writing by any. Nothing here waits.
"""

from __future__ import annotations

import os
import time

from . import TYPE_CHECKING, failures, frames, jsontext
from .calls import Call, CallOver
from .incoming import Incoming
from .outlet import Outlet

if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable

    from .instance import Instance

_READ_BYTES = 64 * 1024
_READ_MORE_BYTES = 512 * 1024
_NEVER = float("inf")
LINGER_SEC = 1.0
"""How long a caller that was told GOAWAY may take to read it."""


class Connection:
    """See the module. `lock` guards what is written and the state of the connection's calls."""

    def __init__(self, instance: Instance, socket: socket) -> None:
        self.instance = instance
        self.socket = socket
        self.fd = socket.fileno()
        self.outlet = Outlet(socket, self._want_write)
        self.lock = self.outlet.lock
        self.calls: dict[int, Call] = {}
        self.role = ""
        """Of the caller, once it was greeted."""
        self.reading = False
        """A thread is reading; used by the engine, under `lock`."""
        self.closed = False
        self.close_at = _NEVER
        """Monotonic time; set once GOAWAY has been said."""
        self.incoming = Incoming(self)
        self._read_bytes = _READ_BYTES
        self._drained = False

    @property
    def ending(self) -> bool:
        """What still comes from the caller is of no interest."""
        return self.closed or self.close_at != _NEVER

    # For the thread that reads.

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
        elif not self.ending:
            self._read_bytes = _READ_MORE_BYTES if len(data) == self._read_bytes else _READ_BYTES
            self.incoming.feed(data)

    def starts(self, call: Call) -> bool:
        """The call's request is complete and its handler may run, unless it has ended meanwhile."""
        with self.lock:
            call.running = not call.over
            return call.running

    def greet(self, role: str) -> None:
        """Answer the caller's HELLO."""
        hello = frames.frame(frames.HELLO, 0, jsontext.encoded(self.instance.hello()))
        with self.lock:
            self.role = role
            self.outlet.write(hello)
        self.instance.greeted(self)

    def close(self) -> None:
        """Close now; calls that still run are abandoned."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self.outlet.shut_when_empty = True
            self.instance.engine.forget(self)
            self.socket.close()
        self._abandon_calls()
        self.instance.left(self)

    # For any thread.

    def send(self, data: bytes) -> None:
        """Frames that belong to no call, or to one that was never begun."""
        with self.lock:
            self.outlet.write(data)

    def send_droppable(self, data: bytes) -> None:
        """Unattributed lines: dropped when the reader is too slow."""
        with self.lock:
            if not self.outlet.is_high:
                self.outlet.write(data)

    def send_lines(self, call: Call) -> None:
        """The lines that a call has printed so far."""
        with self.lock:
            if not call.over:
                self.outlet.write(call.log_frames(last=False, droppable=self.outlet.is_high))

    def begin(self, call: Call, reply: bytes, size: int) -> None:
        """The REPLY of an answer that goes on, with `size` bytes of its body. Raises CallOver."""
        with self.lock:
            if call.over:
                raise CallOver
            call.begun = True
            call.window -= size
            self.outlet.write(reply)

    def send_body(self, call: Call, data: memoryview, waker: Callable[[], object]) -> int:
        """As much of `data` as may be sent now, in one frame; gives its size.

        0: `waker` will be called once, when it is worth trying again. Raises CallOver.
        """
        with self.lock:
            if call.over:
                raise CallOver
            size = 0 if self.outlet.is_high else min(len(data), call.window, frames.MAX_BODY)
            if size == 0:
                call.waker = waker
                return 0
            call.window -= size
            self.outlet.write(frames.frame(frames.BODY, call.id, data[:size]))
            return size

    def finish(self, call: Call, frame: bytes, *, free: bool) -> bool:
        """The call's last frame, after what it has printed; False when the call is over already.

        `free`: the handler is done, so that the caller may send another call as soon as it reads the frame.
        """
        with self.lock:
            if call.over:
                return False
            lines = call.log_frames(last=True, droppable=self.outlet.is_high)
            call.over = True
            self.calls.pop(call.id, None)
            if free:
                self.instance.release(call)
            self.outlet.write(lines + frame if lines else frame)
            call.wake()
        if self.incoming.caller_drains:
            self.close_when_idle()
        return True

    def flush(self) -> None:
        """The socket takes more."""
        with self.lock:
            if self.closed:
                return
            self.outlet.flush()
            if not self.outlet.is_high:
                for call in self.calls.values():
                    call.wake()

    def cork(self) -> None:
        """Keep what is written for one write; see `Outlet.cork`."""
        with self.lock:
            self.outlet.cork()

    def uncork(self) -> None:
        """Write what was kept."""
        with self.lock:
            self.outlet.uncork()

    def drain(self) -> None:
        """Tell the caller to send no more calls: once, and not before HELLO."""
        with self.lock:
            if self.role and not self._drained:
                self._drained = True
                self.outlet.write(frames.frame(frames.DRAIN, 0))

    def close_when_idle(self) -> None:
        """Both sides have drained: end the connection once none of its calls is left."""
        if not self.calls:
            self.go_away("DRAINED", "both sides have finished")

    def go_away(self, reason: str, message: str, detail: str = "") -> None:
        """Say why and read nothing more; the socket closes when the caller has closed its side, or soon."""
        payload = jsontext.encoded({"reason": reason, "message": message, "detail": detail})
        with self.lock:
            if not self.closed:
                self.outlet.say_last(frames.frame(frames.GOAWAY, 0, payload))
            self.close_at = min(self.close_at, time.monotonic() + LINGER_SEC)
        self.instance.overseer.notice(self.close_at)
        self._abandon_calls()

    def hang_up(self) -> None:
        """Make the reading thread find the end of the connection; only that thread may close the socket."""
        with self.lock:
            if not self.closed:
                self.outlet.shut(2)

    def fault(self, error: Exception) -> None:
        """This package has failed: say so where the launcher reads it, and end this connection alone."""
        os.write(2, failures.full_traceback(error).encode("utf-8", "backslashreplace"))
        self.hang_up()

    def _want_write(self) -> None:
        if not self.closed:
            self.instance.engine.want_write(self)

    def _abandon_calls(self) -> None:
        with self.lock:
            calls = [call for call in self.calls.values() if not call.over]
            for call in calls:
                call.over = True
                if not call.running:
                    self.instance.release(call)
                call.wake()
            self.calls.clear()
        for call in calls:
            call.abandon()
