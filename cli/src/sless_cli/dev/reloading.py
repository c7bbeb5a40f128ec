"""Which process serves: a new one after each change, and none while the code cannot be loaded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from sless_calls import Connection, LoadFailed, LogLine, NotReachable

from sless_cli.dev.child import GRACE_SEC, LEAVE_SEC, Child, Runtime
from sless_cli.dev.program import Program
from sless_cli.errors import CliError

_SHOWN_FILES = 3


class Broken(Exception):
    """The code cannot be served: a sentence, and the end of the traceback where there is one."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class Changes(Protocol):
    """Tells of saved files; `watching.Watch`."""

    async def changed(self) -> list[str]:
        """Wait for a change; the paths."""


class Teller(Protocol):
    """How what happens is told."""

    def note(self, text: str) -> None:
        """A line of our own."""

    def lines(self, lines: list[LogLine]) -> None:
        """What the handler printed."""


class Reloader:
    """Keeps one process with the newest code. `run` does the work; `connection` is for calls.

    `program` reads what is to be run, `install` gives the folder of its dependencies; both raise CliError.
    """

    def __init__(
        self,
        runtime: Runtime,
        changes: Changes,
        *,
        program: Callable[[], Program],
        install: Callable[[], Awaitable[Path | None]],
        tell: Teller,
    ) -> None:
        self._runtime = runtime
        self._changes = changes
        self._read = program
        self._install = install
        self._tell = tell
        self._current: Child | None = None
        self._broken: Broken | None = None
        self._starting = True
        self._wanted = asyncio.Event()
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving: set[asyncio.Task[None]] = set()
        self.program: Program | None = None
        """What runs, or ran last."""

    async def connection(self) -> tuple[Connection, Program]:
        """A connection that takes calls, and what runs behind it; waits while a process starts. Raises Broken."""
        while True:
            if self._current is not None and self.program is not None and not self._current.connection.draining:
                return self._current.connection, self.program
            if self._broken is not None and not self._starting:
                raise self._broken
            if not self._starting:
                self._wanted.set()
            await asyncio.shield(self._news)

    async def run(self) -> None:
        """Start, and start again after each change, until cancelled. Then every process has ended."""
        reason: list[str] = []
        try:
            while True:
                reason = await self._attempt(reason)
        finally:
            await self._leave()

    async def _attempt(self, reason: list[str]) -> list[str]:
        """One start, given up when the next change comes sooner; gives what changed (nothing: its process was lost)."""
        self._starting = True
        self._wanted.clear()
        start = asyncio.create_task(self._start(reason))
        change = asyncio.create_task(self._changes.changed())
        wanted = asyncio.create_task(self._wanted.wait())
        try:
            await asyncio.wait({start, change}, return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
                await asyncio.wait({change, wanted}, return_when=asyncio.FIRST_COMPLETED)
            return change.result() if change.done() else []
        finally:
            for task in (start, change, wanted):
                task.cancel()
            await asyncio.gather(start, change, wanted, return_exceptions=True)

    async def _start(self, reason: list[str]) -> None:
        began = time.monotonic()
        try:
            program = self._read()
            dependencies = await self._install()
            child = await Child.start(
                self._runtime,
                program,
                dependencies,
                on_log=self._tell.lines,
                on_drain=self._drained,
                on_close=self._closed,
            )
        except LoadFailed as error:
            self._fail(Broken(error.message, error.detail))
        except (NotReachable, CliError) as error:
            self._fail(Broken(str(error)))
        else:
            self._serve(child, program, reason, time.monotonic() - began)

    def _serve(self, child: Child, program: Program, reason: list[str], seconds: float) -> None:
        first = self.program is None
        self._replace(child)
        self.program, self._broken = program, None
        what = f"ready: {program.entrypoint}" if first else f"reloaded: {_files(reason)}" if reason else "started again"
        self._tell.note(f"{what}, {seconds * 1000:.0f} ms")
        self._announce()

    def _fail(self, broken: Broken) -> None:
        self._replace(None)
        self._broken = broken
        if broken.detail:
            self._tell.note(broken.detail.rstrip("\n"))
        self._tell.note(f"{broken.message}\nevery request is answered 500 until that is mended")
        self._announce()

    def _replace(self, child: Child | None) -> None:
        """From now on calls go to this one; the one before finishes what it has begun."""
        before, self._current = self._current, child
        if before is not None:
            before.connection.retire()
            self._finish(before)

    def _finish(self, child: Child) -> None:
        task = asyncio.create_task(child.stop(GRACE_SEC))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _drained(self, connection: Connection) -> None:
        if self._current is not None and self._current.connection is connection:
            self._tell.note("a handler could not be stopped after its call had ended: its process is replaced")
            self._replace(None)

    def _closed(self, connection: Connection) -> None:
        child = self._current
        if child is not None and child.connection is connection:
            self._current = None
            task = asyncio.create_task(self._bury(child))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _bury(self, child: Child) -> None:
        await child.stop(LEAVE_SEC)
        self._tell.note(f"the handler's process ended ({child.ending}): the next request starts another")

    def _announce(self) -> None:
        self._starting = False
        self._news.set_result(None)
        self._news = asyncio.get_running_loop().create_future()

    async def _leave(self) -> None:
        child, self._current = self._current, None
        if child is not None:
            child.connection.abort()
            await child.stop(LEAVE_SEC)
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)


def _files(paths: list[str]) -> str:
    shown = ", ".join(paths[:_SHOWN_FILES])
    return shown if len(paths) <= _SHOWN_FILES else f"{shown} and {len(paths) - _SHOWN_FILES} more"
