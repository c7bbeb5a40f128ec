"""The engine of async handlers: one asyncio loop that reads, writes and runs them.

Only imported for a handler that is async (or returns an awaitable): `import asyncio` takes longer than all the
rest of a start.
"""

from __future__ import annotations

import asyncio
from _thread import get_ident, start_new_thread
from functools import partial

from . import TYPE_CHECKING, failures, streams
from .answers import Answer, answer_of, chunk_bytes
from .calls import Call, CallOver
from .connection import Connection
from .driving import end_forked_child
from .sockets import accept

if TYPE_CHECKING:
    from _socket import socket
    from contextvars import Context
    from typing import Any

    from .instance import Instance
    from .loader import Handler

_DONE = object()


class LoopEngine:
    """Accepts, reads, writes and runs `handler` on one loop, each call as a task in a copy of `context`."""

    def __init__(self, instance: Instance, listener: socket, handler: Handler, context: Context) -> None:
        self._instance = instance
        self._listener = listener
        self._handler = handler
        self._context = context
        self._connections: dict[int, Connection] = {}
        self._thread = get_ident()
        self._stopping = False
        self.loop = _users_loop()

    def start(self) -> None:
        """Serve callers once the loop runs."""
        self.loop.add_reader(self._listener.fileno(), self._accept)

    def run(self) -> None:
        """The loop, until `stop`. What the user's own tasks raise through it does not end it."""
        while not self._stopping:
            try:
                self.loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - SystemExit in a task of the user's, say
                self._instance.log.write("stderr", failures.traceback_text(error))

    def stop(self) -> None:
        """End `run`; from any thread."""
        self._stopping = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    def want_write(self, connection: Connection) -> None:
        """See instance.Engine."""
        if get_ident() == self._thread:
            self.loop.add_writer(connection.fd, self._writable, connection)
        else:
            self.loop.call_soon_threadsafe(self._writable, connection)

    def forget(self, connection: Connection) -> None:
        """See instance.Engine."""
        self._connections.pop(connection.fd, None)
        self.loop.remove_reader(connection.fd)
        self.loop.remove_writer(connection.fd)

    def unstick(self, now: float) -> float:
        """See instance.Engine: on a loop no call waits behind another."""
        return float("inf")

    def close_in_child(self) -> None:
        """In a forked child: the sockets are the parent's."""
        for connection in self._connections.values():
            connection.socket.close()
        self._listener.close()

    def _accept(self) -> None:
        if (accepted := accept(self._listener)) is not None:
            connection = Connection(self._instance, accepted)
            self._instance.connections.add(connection)
            self._connections[connection.fd] = connection
            self.loop.add_reader(connection.fd, self._readable, connection)

    def _readable(self, connection: Connection) -> None:
        try:
            connection.receive()
            begun = 0
            while (call := connection.incoming.next_call()) is not None:
                self._begin(call)
                begun += 1
            if begun > 1:
                # The tasks take their first steps before `uncork` is called: short ones answer in one write.
                connection.cork()
                self.loop.call_soon(connection.uncork)
        except Exception as error:  # noqa: BLE001 - a fault in here costs one connection
            connection.fault(error)

    def _writable(self, connection: Connection) -> None:
        if connection.closed:
            return
        connection.flush()
        if connection.outlet.backlog:
            self.loop.add_writer(connection.fd, self._writable, connection)
        else:
            self.loop.remove_writer(connection.fd)

    def _begin(self, call: Call) -> None:
        context = self._context.copy()
        context.run(streams.attribute_to, call.log)
        task = self.loop.create_task(self._drive(call), context=context)
        _cancel_with(call, self.loop, task)

    async def _drive(self, call: Call) -> None:
        try:
            event, context = call.event(), call.context()
            call.handler_starts()
            result = self._handler(event, context)
        except BaseException as error:  # noqa: BLE001 - as of _finish
            end_forked_child(error)
            call.fail(error)
            self._instance.release(call)
            return
        await _finish(call, result)


class BackgroundLoop:
    """A loop in a thread of its own, beside the thread engine."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        start_new_thread(self._run, ())

    def finish(self, call: Call, result: object) -> None:
        """Await or iterate what the call's handler returned, and answer; from any thread."""
        self.loop.call_soon_threadsafe(self._begin, call, result)

    def _begin(self, call: Call, result: object) -> None:
        _cancel_with(call, self.loop, self.loop.create_task(_finish(call, result)))

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                self.loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - as of LoopEngine.run
                streams.print_unattributed(failures.traceback_text(error))


_background: list[BackgroundLoop] = []


def background_loop() -> BackgroundLoop:
    """The loop for awaitables that sync handlers return; made when first wanted."""
    if not _background:
        _background.append(BackgroundLoop())
    return _background[0]


def _users_loop() -> asyncio.AbstractEventLoop:
    """The loop that the user's module may have made for the main thread, else a new one."""
    try:
        loop = asyncio.get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
    if loop.is_closed():
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def _cancel_with(call: Call, loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    """When the call is abandoned, by whichever thread, its task is cancelled."""
    call.on_abandon = partial(loop.call_soon_threadsafe, task.cancel)
    if call.over:
        task.cancel()


async def _finish(call: Call, result: Any) -> None:
    """From what the handler returned to the last frame; the call is released."""
    try:
        if hasattr(result, "__await__"):
            result = await result
        end_forked_child(None)
        await _deliver(call, answer_of(result))
    except CallOver:
        return
    except BaseException as error:  # noqa: BLE001 - SystemExit and its like cost the call, not the instance
        end_forked_child(error)
        if not (call.over and isinstance(error, asyncio.CancelledError)):
            call.fail(error)
    finally:
        call.connection.instance.release(call)


async def _deliver(call: Call, answer: Answer) -> None:
    if answer.stream is not None:
        await _stream(call, answer)
    elif not call.answer(answer.status, answer.headers, answer.body):
        await _push(call, call.begin(answer.status, answer.headers, memoryview(answer.body)))
        call.end()


async def _stream(call: Call, answer: Answer) -> None:
    """As of driving: chunks flow as they are made, at the caller's pace."""
    try:
        while (chunk := await _next(answer.stream)) is not _DONE:
            if call.begun:
                await _push(call, memoryview(chunk_bytes(chunk)))
            else:
                first = memoryview(answer.first_chunk(chunk))
                await _push(call, call.begin(answer.status, answer.headers, first))
        if call.begun:
            call.end()
        else:
            call.answer(answer.status, answer.headers, b"")
    finally:
        if hasattr(answer.stream, "aclose"):
            await answer.stream.aclose()
        elif hasattr(answer.stream, "close"):
            await asyncio.to_thread(answer.stream.close)


async def _next(stream: Any) -> object:
    """The next chunk, or _DONE. A sync generator runs in a thread, for it may block."""
    if not hasattr(stream, "__anext__"):
        return await asyncio.to_thread(next, stream, _DONE)
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return _DONE


async def _push(call: Call, data: memoryview) -> None:
    loop = asyncio.get_running_loop()
    while data:
        turn = loop.create_future()
        waker = partial(loop.call_soon_threadsafe, _resolve, turn)
        if sent := call.connection.send_body(call, data, waker):
            data = data[sent:]
        else:
            await turn


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
