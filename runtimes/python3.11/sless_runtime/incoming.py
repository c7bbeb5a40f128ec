"""What a caller sends: frames in their order, checked, until one completes a call's request."""

from __future__ import annotations

from . import PROTOCOL, TYPE_CHECKING, frames, jsontext
from .calls import Call, refusal
from .event import CallHead

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connection import Connection


class Incoming:
    """The reading half of a connection; one thread at a time uses it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._instance = connection.instance
        self._frames = frames.FrameReader()
        self._greeted = False
        self.caller_drains = False
        """The caller sends no more calls."""

    def feed(self, data: bytes) -> None:
        """Add what was received."""
        self._frames.feed(data)

    @property
    def has_frames(self) -> bool:
        """`next_call` has something to do."""
        return not self._connection.ending and self._frames.has_more

    def next_call(self) -> Call | None:
        """Handle frames until one completes a request: gives its call, to be run; None without more frames."""
        try:
            while not self._connection.ending:
                found = self._frames.next()
                if found is None:
                    return None
                call = self._handle(*found)
                if call is not None and self._connection.starts(call):
                    return call
        except frames.Malformed as error:
            self._connection.go_away("PROTOCOL_ERROR", str(error))
        return None

    def _handle(self, kind: int, call_id: int, payload: bytes) -> Call | None:
        if kind == frames.CALL:
            return self._call(call_id, payload)
        if kind in _OF_A_CALL:
            call = self._connection.calls.get(call_id)
            # A call that is over here may not be so for the caller yet: frames for it are late, not wrong.
            return _OF_A_CALL[kind](self, call, payload) if call is not None else None
        if call_id != 0:
            raise frames.Malformed(f"a frame of type {kind} belongs to the connection, not to call {call_id}")
        _OF_THE_CONNECTION[kind](self, payload)
        return None

    # Frames of a call.

    def _call(self, call_id: int, payload: bytes) -> Call | None:
        if not self._greeted or self.caller_drains:
            raise frames.Malformed("a CALL came before HELLO or after DRAIN")
        if call_id == 0 or call_id in self._connection.calls:
            raise frames.Malformed(f"call id {call_id} is 0 or in use")
        head, body = frames.split_call(payload)
        try:
            call = Call(self._connection, call_id, CallHead(head), body)
        except ValueError as error:
            raise frames.Malformed(f"the head of a CALL is not understood: {error}") from None
        if not self._instance.admit(call):
            self._connection.send(refusal(call_id))
            return None
        with self._connection.lock:
            self._connection.calls[call_id] = call
        self._instance.overseer.notice(call.deadline)
        if call.body_ended:
            return call
        self._grant(call)
        return None

    def _body(self, call: Call, payload: bytes) -> None:
        call.receive(payload)
        self._grant(call)

    def _grant(self, call: Call) -> None:
        if amount := call.due_credit():
            self._connection.send(frames.credit(call.id, amount))

    def _end(self, call: Call, _: bytes) -> Call:
        if call.body_ended:
            raise frames.Malformed("an END came after the end of its call's body")
        call.body_ended = True
        return call

    def _cancel(self, call: Call, _: bytes) -> None:
        call.stop(499, "CANCELLED", "the call was cancelled by its caller")

    def _credit(self, call: Call, payload: bytes) -> None:
        with self._connection.lock:
            call.window += frames.number(payload)
            if call.window > 0xFFFFFFFF:
                raise frames.Malformed("more credit was granted than any body has")
            call.wake()

    # Frames of the connection.

    def _hello(self, payload: bytes) -> None:
        hello = _object(payload, "HELLO")
        protocols, role = hello.get("protocol"), hello.get("role")
        if self._greeted or not isinstance(protocols, list) or not isinstance(role, str) or not role:
            raise frames.Malformed("a HELLO came twice or without its protocols and its role")
        self._greeted = True
        if self._instance.turned_away is not None:
            self._connection.go_away(*self._instance.turned_away)
            self._instance.told()
        elif PROTOCOL not in protocols:
            text = f"this instance speaks protocol {PROTOCOL}, not {protocols!r:.100}"
            self._connection.go_away("PROTOCOL_MISMATCH", text)
        else:
            self._connection.greet(role)

    def _goaway(self, _: bytes) -> None:
        self._connection.close()

    def _drain(self, _: bytes) -> None:
        if not self._greeted:
            raise frames.Malformed("a DRAIN came before HELLO")
        self.caller_drains = True
        self._connection.close_when_idle()

    def _ping(self, payload: bytes) -> None:
        self._connection.send(frames.frame(frames.PONG, 0, payload))

    def _pong(self, _: bytes) -> None:
        """Nothing here asks for it; a caller may still say it."""


def _object(payload: bytes, name: str) -> dict[str, object]:
    try:
        value = jsontext.loads(payload.decode())
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise frames.Malformed(f"the payload of a {name} is no JSON object")
    return value


_OF_A_CALL: dict[int, Callable[[Incoming, Call, bytes], Call | None]] = {
    frames.BODY: Incoming._body,
    frames.END: Incoming._end,
    frames.CANCEL: Incoming._cancel,
    frames.CREDIT: Incoming._credit,
}
_OF_THE_CONNECTION: dict[int, Callable[[Incoming, bytes], None]] = {
    frames.HELLO: Incoming._hello,
    frames.GOAWAY: Incoming._goaway,
    frames.DRAIN: Incoming._drain,
    frames.PING: Incoming._ping,
    frames.PONG: Incoming._pong,
}
