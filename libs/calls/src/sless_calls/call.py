"""One call on a connection, from its CALL frame to its last frame."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Protocol

from sless_calls import frames, heads
from sless_calls.errors import AnswerCut, CallCancelled, CallError, ProtocolError, Refused
from sless_calls.heads import LogLine, ReplyHead
from sless_calls.upload import Upload

LogTaker = Callable[[list[LogLine]], None]

_TIMED_OUT: Final = "FUNCTION_TIMEOUT"
_CREDIT_STEP: Final = frames.WINDOW // 4
GUARD_SEC: Final = 5.0
"""How long the last frame is waited for after the deadline, and after CANCEL."""
QUIET_SEC: Final = 3600.0
"""How long a call without a deadline may pass without a byte either way."""


class Wire(Protocol):
    """What a call needs of its connection."""

    def transmit(self, data: bytes) -> None:
        """Write, or do nothing once the connection is closed."""

    async def writable(self) -> None:
        """Wait while the socket does not take more."""

    def finished(self, call_id: int) -> None:
        """The call needs the connection no longer."""

    def watch(self, call: "Call") -> None:
        """The call's `due` is new."""

    def doubt(self) -> None:
        """The instance has ended a call that may be running on: it may be stuck."""

    def now(self) -> float:
        """The loop's time in seconds."""


class Call:
    """One call: `reply()` first, then `first_body`, `read()` or `body()`; for one task at a time.

    As a context manager it cancels the call when the block is left before the answer is complete.
    """

    __slots__ = (
        "_cancelled",
        "_chunks",
        "_consumed",
        "_deadline_ms",
        "_error",
        "_logs",
        "_on_log",
        "_outstanding",
        "_over",
        "_reply",
        "_upload",
        "_waiter",
        "_wire",
        "due",
        "first_body",
        "id",
    )

    def __init__(self, wire: Wire, call_id: int, deadline_ms: int | None, on_log: LogTaker | None) -> None:
        self.id = call_id
        self.first_body = b""
        """The answer's first bytes; all of them when `ReplyHead.end` is set."""
        limit = QUIET_SEC if deadline_ms is None else deadline_ms / 1000 + GUARD_SEC
        self.due = wire.now() + limit
        """Loop time at which the instance counts as silent."""
        self._wire = wire
        self._deadline_ms = deadline_ms
        self._on_log = on_log
        self._logs: list[LogLine] = []
        self._reply: ReplyHead | None = None
        self._error: CallError | None = None
        self._over = False
        self._cancelled = False
        self._chunks: deque[bytes] = deque()
        self._outstanding = 0
        self._consumed = 0
        self._waiter: asyncio.Future[None] | None = None
        self._upload: Upload | None = None

    @property
    def over(self) -> bool:
        """The last frame has come, or the call has failed."""
        return self._over

    @property
    def logs(self) -> list[LogLine]:
        """The lines that the call has printed so far (none here when a callback takes them)."""
        return self._logs

    async def reply(self) -> ReplyHead:
        """The answer's head.

        Raises Refused, InstanceCrashed, InstanceSilent, ProtocolError or CallCancelled. When the waiting task
        is cancelled, so is the call.
        """
        while self._reply is None:
            if self._error is not None:
                raise self._error
            await self._news()
        if self._reply.retry:
            raise Refused("the instance does not take this call; it may go elsewhere")
        return self._reply

    async def body(self) -> AsyncIterator[bytes]:
        """The answer's whole body in pieces as they come, `first_body` included.

        Raises as `reply()` does, and AnswerCut when the instance ended the body with an error. The instance
        may be 1 MiB ahead of the reader at most. Leaving the iteration early cancels the call.
        """
        try:
            await self.reply()
            if self.first_body:
                yield self.first_body
                self._consume(len(self.first_body))
            while True:
                while self._chunks:
                    chunk = self._chunks.popleft()
                    yield chunk
                    self._consume(len(chunk))
                if self._error is not None:
                    raise self._error
                if self._over:
                    return
                await self._news()
        finally:
            self.cancel()

    async def read(self) -> bytes:
        """The answer's whole body at once; raises as `body()` does."""
        reply = await self.reply()
        if reply.end:
            return self.first_body
        return b"".join([chunk async for chunk in self.body()])

    async def send(self, chunk: bytes) -> None:
        """More of the request's body; waits for the instance's credit and for the socket.

        Returns without sending once the answer is complete (the instance needs no more). Raises as `reply()`
        does; when the waiting task is cancelled, so is the call.
        """
        if self._upload is None:
            raise RuntimeError("this call was begun with its whole body: nothing can follow it")
        try:
            await self._upload.send(chunk, self._wire.writable)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._error is not None:
            raise self._error
        self._touch()

    def end(self) -> None:
        """The request's body is complete."""
        if self._upload is not None:
            self._upload.end()

    def cancel(self) -> None:
        """Stop the call in the instance, unless it is over. It stays in flight until its last frame."""
        if self._over or self._cancelled:
            return
        self._cancelled = True
        self._chunks.clear()
        self._error = CallCancelled("the call was cancelled by its caller")
        if self._upload is not None:
            self._upload.stop()
        self._wire.transmit(frames.frame(frames.CANCEL, self.id))
        self.due = min(self.due, self._wire.now() + GUARD_SEC)
        self._wire.watch(self)
        self._wake()

    def __enter__(self) -> "Call":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    # From here on: what the connection uses.

    def begin_upload(self, rest: memoryview, *, sent: int, end: bool) -> None:
        """More body follows the `sent` bytes of the CALL frame."""
        window = frames.WINDOW - sent
        self._upload = Upload(self.id, self._wire.transmit, window=window, rest=rest, end=end)

    def on_reply(self, payload: bytes) -> None:
        """REPLY: the answer's head, or the error that ends a body half-way."""
        reply, body = heads.decode_reply(payload)
        if reply.error is not None and reply.error.type == _TIMED_OUT:
            self._wire.doubt()
        if self._reply is not None:
            if not reply.end or reply.error is None:
                raise ProtocolError("a second REPLY did not end its call with an error")
            self.finish(AnswerCut(reply.error.type, reply.error.message))
            return
        self._reply = reply
        self.first_body = body
        if reply.end:
            self.finish(None)
            return
        self._receive(len(body))
        self._wake()

    def on_body(self, payload: bytes) -> None:
        """BODY: more of the answer."""
        if self._reply is None:
            raise ProtocolError("a BODY came before its REPLY")
        self._receive(len(payload))
        if payload and not self._cancelled:
            self._chunks.append(payload)
            self._wake()

    def on_end(self) -> None:
        """END: the answer is complete."""
        if self._reply is None:
            raise ProtocolError("an END came before its REPLY")
        self.finish(None)

    def on_log(self, payload: bytes) -> None:
        """LOG: lines that this call printed."""
        lines = heads.decode_log(payload)
        if self._on_log is None:
            self._logs += lines
        else:
            self._on_log(lines)

    def on_credit(self, amount: int) -> None:
        """CREDIT: the instance takes so many more bytes."""
        self._touch()
        if self._upload is not None:
            self._upload.credit(amount)

    def finish(self, error: CallError | None) -> None:
        """The call is over: with its last frame (None), or with an error in place of one."""
        if self._over:
            return
        self._over = True
        self._error = self._error or error
        if self._upload is not None:
            self._upload.stop()
        self._wire.finished(self.id)
        self._wake()

    def _receive(self, size: int) -> None:
        self._outstanding += size
        if self._outstanding > frames.WINDOW:
            raise ProtocolError("an instance sent more of a body than it had credit for")
        self._touch()

    def _consume(self, size: int) -> None:
        """Give credit back in large steps: one frame a quarter window, not one a chunk."""
        self._consumed += size
        if self._consumed >= _CREDIT_STEP and not self._over and not self._cancelled:
            self._outstanding -= self._consumed
            self._wire.transmit(frames.credit_frame(self.id, self._consumed))
            self._consumed = 0

    def _touch(self) -> None:
        """A byte has passed: a call without a deadline may be quiet for another hour."""
        if self._deadline_ms is None and not self._cancelled:
            self.due = self._wire.now() + QUIET_SEC

    async def _news(self) -> None:
        """Wait until something has come or the call has failed."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
