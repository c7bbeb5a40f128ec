"""One call inside the instance: its request, its answer, and how it may end."""

from __future__ import annotations

import time

from . import TYPE_CHECKING, failures, frames, jsontext, logs
from .event import Context, make_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connection import Connection
    from .event import CallHead

    Headers = list[tuple[str, str]]

_JSON: list[tuple[str, str]] = [("content-type", "application/json")]
_HEAD = b'{"status": %d, "headers": %b, "end": %b, "handler_ms": %.3f%b}'
_known_headers: dict[tuple[str, str], bytes] = {}
_MAX_KNOWN = 32
_CREDIT_STEP = frames.WINDOW // 4


class CallOver(Exception):
    """The call has had its last frame: nothing more of it is wanted."""


class Call:
    """State of one call. Whoever ends it first wins; everyone later finds `over` set.

    Attributes that several threads touch (`over`, `begun`, `window`, `waker`) are guarded by the connection's
    lock.
    """

    __slots__ = (
        "_body",
        "_handler_at",
        "_log",
        "_uncredited",
        "abandoned_at",
        "begun",
        "body_ended",
        "connection",
        "deadline",
        "head",
        "id",
        "on_abandon",
        "outstanding",
        "over",
        "running",
        "waker",
        "window",
    )

    def __init__(self, connection: Connection, call_id: int, head: CallHead, body: bytes) -> None:
        self.connection = connection
        self.id = call_id
        self.head = head
        now = time.monotonic()
        self.deadline = now + head.deadline_ms / 1000
        """Monotonic time; infinity without a limit."""
        self._body = [body]
        self.body_ended = head.end
        self.outstanding = len(body)
        self._uncredited = len(body)
        self.window = frames.WINDOW
        self.running = False
        """The handler has the call (or is about to)."""
        self.begun = False
        """A REPLY has been sent."""
        self.over = False
        self.abandoned_at = float("inf")
        """Monotonic time at which the call ended while its handler ran on."""
        self.on_abandon: Callable[[], object] | None = None
        self.waker: Callable[[], object] | None = None
        self._log: logs.LineLog | None = None
        self._handler_at = now

    # The request.

    def receive(self, chunk: bytes) -> None:
        """More of the request's body. Raises Malformed when the caller had no credit for it."""
        if self.body_ended:
            raise frames.Malformed("a BODY came after the end of its call's body")
        self.outstanding += len(chunk)
        if self.outstanding > frames.WINDOW:
            raise frames.Malformed("more of a body was sent than there was credit for")
        self._body.append(chunk)
        self._uncredited += len(chunk)

    def due_credit(self) -> int:
        """What the caller may be granted now, in large steps: everything received is kept here anyway."""
        if self._uncredited < _CREDIT_STEP:
            return 0
        amount, self._uncredited = self._uncredited, 0
        self.outstanding -= amount
        return amount

    def event(self) -> object:
        """The handler's first argument; the body is given up."""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        return make_event(self.head, body)

    def context(self) -> Context:
        """The handler's second argument."""
        return Context(self.connection.instance.settings, self.head, self.deadline)

    # The log.

    def log(self) -> logs.LineLog:
        """Where the call's prints go: its own log, or the instance's once the call is over."""
        if self.over:
            return self.connection.instance.log
        if self._log is None:
            self._log = logs.LineLog(self.id, logs.CALL_BYTES, self.connection.instance.lines_wait)
        return self._log

    @property
    def lines_since(self) -> float:
        """Monotonic time of the oldest printed line that waits, infinity without one."""
        return self._log.since if self._log is not None else float("inf")

    @property
    def lines_full(self) -> bool:
        """So many lines wait that they should go at once."""
        return self._log is not None and self._log.is_full

    def log_frames(self, *, last: bool, droppable: bool) -> bytes:
        """LOG frames for the lines that wait; nothing, and they are counted, when the reader is too slow."""
        if self._log is None:
            return b""
        if droppable:
            self._log.drop()
        return self._log.finish() if last else self._log.take()

    # The answer.

    def wake(self) -> None:
        """Who waits to send more of the body may try again. Under the connection's lock."""
        waker, self.waker = self.waker, None
        if waker is not None:
            waker()

    def handler_starts(self) -> None:
        """`handler_ms` counts from here."""
        self._handler_at = time.monotonic()

    def answer(self, status: int, headers: Headers, body: bytes) -> bool:
        """The whole answer in one frame; False when it is too large for that, and nothing was done."""
        if len(body) > frames.MAX_BODY:
            return False
        self._finish(self._reply(status, headers, body, end=True), free=True)
        return True

    def begin(self, status: int, headers: Headers, first: memoryview) -> memoryview:
        """The answer's head and as much of its body as fits; gives the rest. Raises CallOver."""
        size = min(len(first), frames.MAX_BODY)
        self.connection.begin(self, self._reply(status, headers, first[:size], end=False), size)
        return first[size:]

    def end(self) -> None:
        """The answer's body is complete."""
        self._finish(frames.frame(frames.END, self.id), free=True)

    def fail(self, error: BaseException) -> None:
        """The handler raised: the platform's error body, or the error that ends a body half-way."""
        self.log().write("stderr", failures.traceback_text(error))
        kind, message = type(error).__name__, failures.message_of(error)
        sentence = failures.sentence_of(error)
        body = failures.error_body(sentence, "HANDLER_ERROR", self.head.request_id, kind)
        self._finish(self._failed(500, kind, message, body), free=True)

    def stop(self, status: int, code: str, message: str) -> None:
        """End the call from outside its handler, and stop the handler where that can be done."""
        body = failures.error_body(message, code, self.head.request_id)
        if self._finish(self._failed(status, code, message, body), free=not self.running):
            self.abandon()

    def abandon(self) -> None:
        """Nobody wants the call any more, but its handler may still run."""
        if self.running:
            self.abandoned_at = time.monotonic()
            self.connection.instance.abandoned(self)
            if self.on_abandon is not None:
                self.on_abandon()

    def _finish(self, frame: bytes, *, free: bool) -> bool:
        return self.connection.finish(self, frame, free=free)

    def _failed(self, status: int, kind: str, message: str, body: bytes) -> bytes:
        error = {"type": kind, "message": message}
        return self._reply(status, _JSON, b"" if self.begun else body, end=True, error=error)

    def _reply(
        self,
        status: int,
        headers: Headers,
        body: bytes | memoryview,
        *,
        end: bool,
        error: dict[str, str] | None = None,
    ) -> bytes:
        taken = (time.monotonic() - self._handler_at) * 1000
        rest = b"" if error is None else b', "error": ' + jsontext.encoded(error)
        head = _HEAD % (status, _headers_json(headers), b"true" if end else b"false", taken, rest)
        return frames.reply(self.id, head, body)


def _headers_json(headers: Headers) -> bytes:
    """Most answers have a content type and nothing else, of a few kinds: those are remembered."""
    if len(headers) != 1:
        return jsontext.encoded(headers)
    known = _known_headers.get(headers[0])
    if known is None:
        known = jsontext.encoded(headers)
        if len(_known_headers) < _MAX_KNOWN:
            _known_headers[headers[0]] = known
    return known


def refusal(call_id: int) -> bytes:
    """The REPLY for a call that this instance does not take; it has not begun and may go elsewhere."""
    head = {"status": 503, "headers": [], "end": True, "retry": True}
    return frames.reply(call_id, jsontext.encoded(head), b"")
