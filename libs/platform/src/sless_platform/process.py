"""A service's process: its event loop, its signals, and the word to its parent that it is ready."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from sless_platform import settings
from sless_platform.errors import PlatformError

P = ParamSpec("P")
S = TypeVar("S", bound=settings.Settings)

_CONFIGURATION_EXIT = 78  # EX_CONFIG of sysexits.h: a restart alone will not help


def run(main: Callable[P, Coroutine[Any, Any, None]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run `main(*args)` to its end on a new uvloop, whatever loop the parent of this process had."""
    # Imported here, so that a parent that only imports this module has touched no loop.
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(*args, **kwargs))


def run_service(settings_class: type[S], serve: Callable[[S], Coroutine[Any, Any, None]]) -> None:
    """A service's `main`: settings from the environment, then `serve` until it returns.

    What an operator can mend ends the process with sentences on stderr, without a traceback: settings with exit code 78, a typed
    error (an older schema, an address in use) with 1.
    """
    try:
        loaded = settings.load(settings_class)
    except settings.SettingsError as error:
        _end(str(error), _CONFIGURATION_EXIT)
    try:
        run(serve, loaded)
    except PlatformError as error:
        _end(error.message, 1)


def _end(message: str, code: int) -> None:
    print(message, file=sys.stderr)  # noqa: T201 - the settings that say how to log may be what is wrong
    raise SystemExit(code)


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Event]:
    """An event that SIGTERM or SIGINT sets: `async with stop_signals() as stop: await stop.wait()`.

    A second signal while the service drains changes nothing; the parent's SIGKILL ends what hangs.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def notify_ready(fd: int | None) -> None:
    """Write `READY` and a newline to the descriptor that the parent reads, and close it; nothing for None.

    A parent that has gone away is no fault of ours.
    """
    if fd is None:
        return
    try:
        os.write(fd, b"READY\n")
    except BrokenPipeError:
        pass
    finally:
        os.close(fd)
