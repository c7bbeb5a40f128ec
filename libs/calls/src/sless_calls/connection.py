"""One connection to one instance, shared by many calls."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Self

from sless_calls import frames, heads
from sless_calls.call import Call, LogTaker
from sless_calls.errors import (
    CallError,
    InstanceCrashed,
    InstanceSilent,
    LoadFailed,
    NotReachable,
    NotSent,
    ProtocolError,
    ProtocolMismatch,
)
from sless_calls.guard import Guard
from sless_calls.heads import CallHead, GoAway, InstanceHello
from sless_calls.wire import Wire

Observer = Callable[["Connection"], None]
_CALL_FRAMES: Final = frozenset({frames.REPLY, frames.BODY, frames.END, frames.LOG, frames.CREDIT})


class Connection:
    """A kept connection. Made by `Connection.open`; used from its event loop only.

    `call` writes at once and never waits, so that a plain call costs one write.
    """

    def __init__(
        self, address: str, *, on_log: LogTaker | None, on_drain: Observer | None, on_close: Observer | None
    ) -> None:
        """For `open` alone."""
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._on_log = on_log
        self._on_drain = on_drain
        self._on_close = on_close
        self.on_free: Callable[[], None] | None = None
        """Called whenever a call is over, so that there may be room for another."""
        self._wire = Wire(address, self._frame, self._ended)
        self.transmit = self._wire.transmit
        self.writable = self._wire.writable
        self.now = self._loop.time
        self._calls: dict[int, Call] = {}
        self._last_id = 0
        self._guard = Guard(self._loop, self._calls, self._silent)
        self.watch = self._guard.watch
        self._hello: InstanceHello | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._pongs: dict[bytes, asyncio.Future[None]] = {}
        self._pings = 0
        self._doubt: bytes | None = None
        self._draining = False
        self._why: CallError = NotReachable(f"the instance at {address} has not said HELLO yet")

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        role: str,
        open_timeout: timedelta,
        on_log: LogTaker | None = None,
        on_drain: Observer | None = None,
        on_close: Observer | None = None,
    ) -> Self:
        """Connect to `unix:/path` or `host:port` and exchange HELLO, within `open_timeout` in all.

        `role` is `gateway`, `invoker` or `runtime-manager`. `on_log` takes lines that belong to no call (sent
        to role runtime-manager only), `on_drain` is called once when the instance asks for no more calls,
        `on_close` once when this connection, open until then, is no more.

        Raises NotReachable, LoadFailed or ProtocolMismatch.
        """
        connection = cls(address, on_log=on_log, on_drain=on_drain, on_close=on_close)
        try:
            async with asyncio.timeout(open_timeout.total_seconds()):
                await connection._wire.connect()
                connection.transmit(heads.encode_hello(role))
                await connection._opened
        except TimeoutError:
            raise NotReachable(
                f"the instance at {address} did not say HELLO within {open_timeout.total_seconds():g} s"
            ) from None
        except OSError as error:
            raise NotReachable(f"nothing answers at {address}: {error}") from error
        finally:
            if connection._hello is None:
                connection.abort()
        if connection._hello is None:
            raise _at_opening(connection._why)
        return connection

    @property
    def address(self) -> str:
        """Where the instance listens."""
        return self._address

    @property
    def hello(self) -> InstanceHello:
        """How the instance introduced itself."""
        if self._hello is None:
            raise self._why
        return self._hello

    @property
    def in_flight(self) -> int:
        """Calls whose last frame has not come."""
        return len(self._calls)

    @property
    def draining(self) -> bool:
        """No new call may be sent; those in flight are finished."""
        return self._draining

    @property
    def doubted(self) -> bool:
        """A sign of life is awaited: until it comes the instance may be stuck, and should get no call."""
        return self._doubt is not None

    @property
    def closed(self) -> bool:
        """The socket is closed."""
        return self._wire.closed

    def call(self, head: CallHead, body: bytes = b"", *, end: bool = True, on_log: LogTaker | None = None) -> Call:
        """Send a call. With `end=False` more body follows by `Call.send` and `Call.end`.

        A body of any size may be given: what exceeds the window follows by itself as the instance takes it.
        Raises NotSent when the connection takes no calls, and ValueError for a head above 512 KiB.
        """
        if self._draining or self._wire.closed:
            raise NotSent(f"the call was not sent: {self._why}")
        whole = end and len(body) <= frames.MAX_BODY
        first = body if whole else body[: frames.MAX_BODY]
        call_id = self._next_id()
        data = heads.encode_call(call_id, head, first, end=whole)
        call = self._calls[call_id] = Call(self, call_id, head.deadline_ms, on_log)
        self._guard.watch(call)
        self._wire.transmit(data)
        if not whole:
            call.begin_upload(memoryview(body)[len(first) :], sent=len(first), end=end)
        return call

    async def ping(self) -> timedelta:
        """Ask for a sign of life; gives how long it took. Raises NotReachable when there is no connection."""
        self._pings += 1
        payload = self._pings.to_bytes(8, "big")
        started = self._loop.time()
        pong = self._pongs[payload] = self._loop.create_future()
        self.transmit(frames.frame(frames.PING, 0, payload))
        try:
            if not self.closed:
                await pong
        finally:
            del self._pongs[payload]
        if self.closed:
            raise NotReachable(str(self._why))
        return timedelta(seconds=self._loop.time() - started)

    def doubt(self) -> None:
        """Ask for a sign of life: a handler that blocks its instance's event loop keeps it from taking calls."""
        self._pings += 1
        self._doubt = self._pings.to_bytes(8, "big")
        self.transmit(frames.frame(frames.PING, 0, self._doubt))

    def retire(self) -> None:
        """Send no more calls, tell the instance so, and close when the last one is over."""
        if not self._draining:
            self._draining = True
            self._why = NotReachable(f"the connection to {self._address} is being drained")
            self.transmit(frames.frame(frames.DRAIN, 0))
            self._close_when_idle()

    def abort(self) -> None:
        """Close now: calls in flight are stopped in the instance and fail here."""
        self._wire.end(NotReachable(f"the connection to {self._address} was closed by its caller"))

    async def close(self) -> None:
        """`abort`, and wait until the socket is closed."""
        self.abort()
        await self._wire.gone()

    def finished(self, call_id: int) -> None:
        """For `Call`: it needs the connection no longer."""
        self._calls.pop(call_id, None)
        if self.on_free is not None:
            self.on_free()
        if self._draining:
            self._close_when_idle()

    def _next_id(self) -> int:
        """Ids count up and begin again after 2^32; one in use is passed over."""
        self._last_id = self._last_id % 0xFFFFFFFF + 1
        while self._last_id in self._calls:
            self._last_id = self._last_id % 0xFFFFFFFF + 1
        return self._last_id

    def _close_when_idle(self) -> None:
        if not self._calls:
            self._wire.end(self._why)

    def _silent(self, call: Call) -> None:
        """An instance that misses a last frame gets no more calls; those it still answers are finished."""
        call.finish(InstanceSilent(f"the instance at {self._address} did not end a call in time"))
        self.retire()

    def _ended(self, why: CallError) -> None:
        self._why = why
        self._draining = True
        self._guard.stop()
        for call in list(self._calls.values()):
            call.finish(why)
        for future in (self._opened, *self._pongs.values()):
            if not future.done():
                future.set_result(None)
        if self._hello is not None and self._on_close is not None:
            self._on_close(self)

    # Frames.

    def _frame(self, kind: int, call_id: int, payload: bytes) -> None:
        if self._wire.closed:
            return
        if call_id == 0:
            self._connection_frame(kind, payload)
        elif self._hello is None:
            raise ProtocolError(f"a frame of type {kind} came before HELLO")
        elif (call := self._calls.get(call_id)) is not None:
            self._call_frame(call, kind, payload)
        elif kind not in _CALL_FRAMES:
            raise ProtocolError(f"a frame of type {kind} does not belong to a call")
        # Else it is late: the call was given up here before the instance had ended it.

    def _call_frame(self, call: Call, kind: int, payload: bytes) -> None:
        if kind == frames.REPLY:
            call.on_reply(payload)
        elif kind == frames.BODY:
            call.on_body(payload)
        elif kind == frames.END:
            call.on_end()
        elif kind == frames.LOG:
            call.on_log(payload)
        elif kind == frames.CREDIT:
            call.on_credit(frames.credit_of(payload))
        else:
            raise ProtocolError(f"a frame of type {kind} does not belong to a call")

    def _connection_frame(self, kind: int, payload: bytes) -> None:
        if kind == frames.GOAWAY:
            self._goaway(heads.decode_goaway(payload))
        elif kind == frames.HELLO and self._hello is None:
            self._greet(heads.decode_hello(payload))
        elif kind == frames.PING:
            self.transmit(frames.frame(frames.PONG, 0, payload))
        elif kind == frames.PONG:
            self._pong(payload)
        elif kind == frames.LOG and self._hello is not None:
            lines = heads.decode_log(payload)
            if self._on_log is not None:
                self._on_log(lines)
        elif kind == frames.DRAIN and self._hello is not None:
            self._drained()
        else:
            raise ProtocolError(f"a frame of type {kind} came out of order")

    def _pong(self, payload: bytes) -> None:
        if (pong := self._pongs.get(payload)) is not None and not pong.done():
            pong.set_result(None)
        if payload == self._doubt:
            self._doubt = None
            if self.on_free is not None:
                self.on_free()

    def _greet(self, hello: InstanceHello) -> None:
        if hello.protocol != frames.PROTOCOL:
            speaks = f"the instance at {self._address} speaks protocol {hello.protocol}"
            self._wire.end(ProtocolMismatch(f"{speaks}, this side {frames.PROTOCOL}"))
            return
        self._hello = hello
        if not self._opened.done():
            self._opened.set_result(None)

    def _drained(self) -> None:
        """The instance wants no more calls. Our own DRAIN tells it that none is under way."""
        was_draining = self._draining
        self.retire()
        if not was_draining and self._on_drain is not None:
            self._on_drain(self)

    def _goaway(self, going: GoAway) -> None:
        text = f"the instance at {self._address} ends the connection ({going.reason}): {going.message}"
        if going.reason == "LOAD_FAILED":
            self._wire.end(LoadFailed(going.reason, going.message, going.detail))
        elif going.reason == "PROTOCOL_MISMATCH":
            self._wire.end(ProtocolMismatch(text))
        elif going.reason == "PROTOCOL_ERROR":
            self._wire.end(ProtocolError(text))
        else:
            self._wire.end(InstanceCrashed(text) if self._hello else NotReachable(text))


def _at_opening(why: CallError) -> CallError:
    """What the end of a connection means where no call had been made yet."""
    if isinstance(why, InstanceCrashed):
        return NotReachable(str(why))
    return ProtocolMismatch(str(why)) if isinstance(why, ProtocolError) else why
