"""A folder served from here until somebody interrupts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from sless_calls import LogLine

from sless_cli.dev.child import Runtime, compiled
from sless_cli.dev.dependencies import Installer
from sless_cli.dev.front import Front, listen
from sless_cli.dev.program import program_of
from sless_cli.dev.reloading import Reloader
from sless_cli.dev.watching import Watch
from sless_cli.planning import Wishes


@dataclass(frozen=True, slots=True)
class Options:
    """folder   with the code
    wishes   what the command line says of the handler
    host     to listen on
    port     to listen on; 0: a free one
    python   interpreter of runtime python3.11
    start    the runtime's start program
    """

    folder: Path
    wishes: Wishes
    host: str
    port: int
    python: Path
    start: Path


class Terminal:
    """Tells at once: our own lines on stderr, the handler's where it printed them. `gone` is called when nobody reads them."""

    def __init__(self, gone: Callable[[], None]) -> None:
        self._gone = gone

    def note(self, text: str) -> None:
        """A line of our own."""
        self._print(text, sys.stderr)

    def lines(self, lines: list[LogLine]) -> None:
        """What the handler printed."""
        for line in lines:
            self._print(line.text, sys.stdout if line.stream == "stdout" else sys.stderr)

    def _print(self, text: str, stream: TextIO) -> None:
        try:
            print(text, file=stream, flush=True)
        except BrokenPipeError:
            # Neither flushed again at the end, which would fail as well.
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), stream.fileno())
            self._gone()


async def serve(options: Options, environ: Mapping[str, str]) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. Raises CliError for what makes no sense from the beginning."""
    program_of(options.folder, options.wishes)
    stop = asyncio.Event()
    tell = Terminal(stop.set)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # What nohup and a shell's & have asked to ignore stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with tempfile.TemporaryDirectory(prefix="sless-dev-", ignore_cleanup_errors=True) as run:
        (Path(run) / "home").mkdir()
        start = compiled(options.start, options.python, Path(run))
        reloader = Reloader(
            Runtime(python=options.python, start=start, code=options.folder, run=Path(run)),
            Watch(options.folder),
            program=lambda: program_of(options.folder, options.wishes),
            install=Installer(options.folder, options.python, environ, tell.note),
            tell=tell,
        )
        listener = await listen(Front(reloader, tell), options.host, options.port)
        print(listener.url, flush=True)
        try:
            await _run_until(stop, reloader)
        finally:
            await listener.close()
    tell.note("stopped")


async def _run_until(stop: asyncio.Event, reloader: Reloader) -> None:
    """Raises what ended the reloader, which by itself goes on for ever."""
    running, stopping = asyncio.create_task(reloader.run()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        running.cancel()
        stopping.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)
