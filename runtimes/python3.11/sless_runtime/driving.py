"""Runs a sync handler for one call in the running thread, and sends what it returns."""

from __future__ import annotations

import os
from _thread import allocate_lock

from . import TYPE_CHECKING, failures, streams
from .answers import Answer, answer_of, chunk_bytes
from .calls import Call, CallOver

if TYPE_CHECKING:
    from .loader import Handler


def drive(call: Call, handler: Handler) -> None:
    """From event to last frame; whatever the handler does ends here, and the call is released."""
    streams.attribute_to(call.log)
    handed_over = False
    try:
        event, context = call.event(), call.context()
        call.handler_starts()
        result = handler(event, context)
        end_forked_child(None)
        if hasattr(result, "__await__") or hasattr(result, "__aiter__"):
            handed_over = True
            _to_event_loop(call, result)
        else:
            _deliver(call, answer_of(result))
    except CallOver:
        return
    except BaseException as error:  # noqa: BLE001 - SystemExit and its like cost the call, not the instance
        end_forked_child(error)
        call.fail(error)
    finally:
        if not handed_over:
            call.connection.instance.release(call)


def end_forked_child(error: BaseException | None) -> None:
    """A handler that forks comes back twice; the call is the parent's, and the child ends here."""
    if streams.in_child():
        if error is not None:
            os.write(2, failures.traceback_text(error).encode("utf-8", "backslashreplace"))
        os._exit(error is not None)


def _to_event_loop(call: Call, result: object) -> None:
    """A sync function that returns a coroutine, as decorated ones do: the one event loop awaits it."""
    from .aio import background_loop

    background_loop().finish(call, result)


def _deliver(call: Call, answer: Answer) -> None:
    if answer.stream is not None:
        _stream(call, answer)
    elif not call.answer(answer.status, answer.headers, answer.body):
        _push(call, call.begin(answer.status, answer.headers, memoryview(answer.body)))
        call.end()


def _stream(call: Call, answer: Answer) -> None:
    """Chunks flow as they are made; the handler's generator waits while the caller's window is full."""
    try:
        for chunk in answer.stream:
            if call.begun:
                _push(call, memoryview(chunk_bytes(chunk)))
            else:
                first = memoryview(answer.first_chunk(chunk))
                _push(call, call.begin(answer.status, answer.headers, first))
        if call.begun:
            call.end()
        else:
            call.answer(answer.status, answer.headers, b"")
    finally:
        if hasattr(answer.stream, "close"):
            answer.stream.close()


def _push(call: Call, data: memoryview) -> None:
    connection = call.connection
    while data:
        turn = allocate_lock()
        turn.acquire()
        if sent := connection.send_body(call, data, turn.release):
            data = data[sent:]
        else:
            turn.acquire()
