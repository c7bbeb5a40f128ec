"""From the environment to a serving instance, and out of it again."""

from __future__ import annotations

import os
import sys
import time
from _thread import start_new_thread
from contextvars import copy_context

from . import TYPE_CHECKING, loader, sockets, streams
from .instance import Instance
from .settings import BadSettings, Settings
from .threads import ThreadEngine

if TYPE_CHECKING:
    from _socket import socket

    from .aio import LoopEngine
    from .loader import Handler

_LEAVE_SEC = 2.0
"""What the user's atexit functions may take."""


def main() -> None:
    """Serve until the end, which is the process's: this does not return."""
    try:
        settings = Settings()
    except BadSettings as error:
        sys.exit(f"sless: {error}")
    instance = Instance(settings)
    listener = sockets.listener(settings.listen_fd)
    streams.install(instance.log)
    try:
        handler = loader.load(settings)
    except loader.LoadFailed as failure:
        instance.log.write("stderr", f"{failure.detail or failure.message}\n")
        instance.log.spill()
        instance.turn_away(failure.message, failure.detail)
        _serve_in_threads(instance, listener, loader.Handler(_nothing))
        _leave(instance, 1)
    instance.overseer.take_signals()
    if handler.is_async:
        _serve_on_loop(instance, listener, handler)
    else:
        _serve_in_threads(instance, listener, handler)
    _leave(instance, 0)


def _serve_in_threads(instance: Instance, listener: socket, handler: Handler) -> None:
    """Handlers run in threads; this one, the main thread, looks after time and signals."""
    engine = instance.engine = ThreadEngine(instance, listener, handler, copy_context())
    _when_forked(engine)
    engine.start()
    # Callers are greeted meanwhile. Imported by the main thread, or `threading` takes another for it.
    import threading  # noqa: F401

    streams.follow_threads()
    streams.follow_pools()
    engine.open()
    instance.overseer.run()


def _serve_on_loop(instance: Instance, listener: socket, handler: Handler) -> None:
    """Handlers run on the main thread's loop; another thread looks after time, also when a handler blocks it."""
    from .aio import LoopEngine

    engine = instance.engine = LoopEngine(instance, listener, handler, copy_context())
    _when_forked(engine)
    streams.follow_threads()
    streams.follow_pools()
    engine.start()
    start_new_thread(_oversee, (instance, engine))
    engine.run()


def _nothing() -> None:
    """Stands for a handler that could not be loaded; no caller gets as far as a call."""


def _oversee(instance: Instance, engine: LoopEngine) -> None:
    instance.overseer.run()
    engine.stop()
    _exit_later(0)


def _when_forked(engine: ThreadEngine | LoopEngine) -> None:
    os.register_at_fork(after_in_child=engine.close_in_child)


def _leave(instance: Instance, status: int) -> None:
    """End the process. Threads of the user's are not waited for, its atexit functions for a moment."""
    start_new_thread(_exit_later, (status,))
    import atexit

    atexit._run_exitfuncs()
    instance.log.spill()
    os._exit(status)


def _exit_later(status: int) -> None:
    time.sleep(_LEAVE_SEC)
    os._exit(status)
