"""Does for nothing once what every start and first call do, in a process that waits for its function.

A fork writes to memory that it shares with its zygote for the first time, page by page, and that costs as much as the work itself.
After this it has done so while nobody waited. It leaves nothing: no descriptor, module, variable or thread.
"""

from __future__ import annotations

import _socket
import os
import sys
from contextvars import copy_context

from . import TYPE_CHECKING, answers, frames
from .connection import Connection
from .instance import Instance
from .loader import Handler

if TYPE_CHECKING:
    from .settings import Settings

_HELLO = b'{"protocol": [1], "role": "invoker"}'
_HEAD = b'{"id": "", "method": "GET", "path": "/", "query": "", "headers": [["host", "x"]], "end": true}'
_MODULE = "colorsys"
"""A small module of the standard library that nothing has loaded."""


class _Nothing:
    """Settings of no function."""

    function = namespace = instance = entrypoint = code_dir = dependencies_dir = ""
    version, max_concurrency, memory_mb, grace_sec, listen_fd = 0, 1, 128, 1.0, -1


class _Still:
    """An engine that moves nothing."""

    def want_write(self, connection: Connection) -> None:
        """See instance.Engine."""

    def unstick(self, _now: float) -> float:
        """See instance.Engine."""
        return float("inf")

    def forget(self, connection: Connection) -> None:
        """See instance.Engine."""


def rehearse() -> None:
    """Load a module, greet a caller, answer a call."""
    _load()
    settings: Settings = _Nothing()  # type: ignore[assignment]
    instance = Instance(settings)
    instance.engine = _Still()
    ours, theirs = _socket.socketpair()
    theirs.setblocking(False)
    connection = Connection(instance, theirs)
    try:
        ours.sendall(_frame(frames.HELLO, 0, _HELLO) + _frame(frames.CALL, 1, len(_HEAD).to_bytes(4, "big") + _HEAD))
        connection.receive()
        _answer(connection)
    finally:
        connection.close()
        ours.close()
        instance.overseer.close()


def _load() -> None:
    known = _MODULE in sys.modules
    __import__(_MODULE)
    if not known:
        del sys.modules[_MODULE]
    os.listdir("/")


def _answer(connection: Connection) -> None:
    call = connection.incoming.next_call()
    if call is None:
        return
    handler = Handler(lambda _event: {"status": "ok"})
    call.context()
    call.handler_starts()
    answer = answers.answer_of(copy_context().run(handler, call.event(), None))
    call.answer(answer.status, answer.headers, answer.body)


def _frame(kind: int, call_id: int, payload: bytes) -> bytes:
    return (5 + len(payload)).to_bytes(4, "big") + bytes((kind,)) + call_id.to_bytes(4, "big") + payload
