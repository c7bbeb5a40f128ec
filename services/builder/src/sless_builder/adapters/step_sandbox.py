"""Sandbox: a confinement, and limits."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from sless_platform.errors import Unavailable
from sless_platform.telemetry import spanned

from sless_builder.adapters import step_usage
from sless_builder.adapters.confinement import Confinement
from sless_builder.adapters.control_groups import ControlGroup, ControlGroups
from sless_builder.adapters.interpreter import interpreter_files
from sless_builder.adapters.step_process import Lines, StepProcess, copy, start
from sless_builder.adapters.step_watch import StepWatch
from sless_builder.application.finishing import in_thread, to_its_end
from sless_builder.domain.steps import Exceeded, Step, StepEnd, StepLimits

_PROGRAM: Final = Path(__file__).with_name("step_program.py")
_FILES: Final = 4_096
_FILE_MARGIN: Final = 1 << 20
"""A file that is too large must show as such."""
_OWN_PROCESSES: Final = 2
"""bubblewrap's."""


class StepSandbox:
    """Runs steps as user `uid`, None for this process's own. `python` starts them; `groups` bound them as far as they can."""

    def __init__(self, confinement: Confinement, *, python: Path, uid: int | None, groups: ControlGroups) -> None:
        self._confinement = confinement
        self._python = python.resolve()
        self._uid = uid
        self._groups = groups

    @spanned("step")
    async def run(self, step: Step, output: Callable[[str], None]) -> StepEnd:
        """See Sandbox."""
        lines = Lines(output)
        async with self._roomed(step) as own, self._grouped(own.limits) as group, self._running(own, group) as process:
            watch = StepWatch(process, own, group=group, kept=self._groups.controllers)
            exceeded = await _end_or_limit(process, lines, watch, own.limits)
            if exceeded is not None:
                process.kill()
            await process.gone()
            # What ended it may have been a limit that was reached between two looks.
            exceeded = exceeded or group.exceeded() or await in_thread(watch.look)
            code, signal = (None, None) if exceeded is not None else process.end()
        lines.close()
        return StepEnd(code, signal, exceeded)

    @asynccontextmanager
    async def _roomed(self, step: Step) -> AsyncIterator[Step]:
        """The step as it is run; its room is given back when all of it is gone."""
        with ExitStack() as stack:
            try:
                yield await in_thread(lambda: stack.enter_context(self._confinement.room(step)))
            finally:
                await in_thread(stack.close)

    @asynccontextmanager
    async def _grouped(self, limits: StepLimits) -> AsyncIterator[ControlGroup]:
        group = self._groups.new()
        try:
            _make(group, limits)
            yield group
        finally:
            group.remove()

    @asynccontextmanager
    async def _running(self, step: Step, group: ControlGroup) -> AsyncIterator[StepProcess]:
        started: list[StepProcess] = []

        def begin() -> None:
            # Kept here, so that a cancelled caller finds it to end it.
            private = self._confinement.private
            command = lambda gate, status: group.entered(self._command(step, gate, status))  # noqa: E731
            started.append(start(command, step.env, private=private))

        try:
            await in_thread(begin)
            started[0].go()
            yield started[0]
        finally:
            for process in started:
                process.kill()
                await to_its_end(process.gone())
                process.close()

    def _command(self, step: Step, gate: int, status: int) -> list[str]:
        asked = {
            "gate": gate,
            "uid": self._uid or 0,
            "cwd": str(step.cwd),
            "env": [*step.env],
            "limits": self._resource_limits(step.limits),
            "status": None if self._confinement.private else status,
        }
        inside = (str(self._python), "-I", "-S", "-B", str(_PROGRAM), json.dumps(asked), *step.argv)
        programs = (_PROGRAM, *interpreter_files(self._python))
        return self._confinement.command(step, inside, programs=programs, status=status)

    def _resource_limits(self, limits: StepLimits) -> dict[str, int]:
        """What holds for each process, beside what is counted for all of them."""
        found = {"RLIMIT_FSIZE": limits.disk_bytes + _FILE_MARGIN, "RLIMIT_NOFILE": _FILES, "RLIMIT_CORE": 0}
        if "memory" not in self._groups.controllers:
            found["RLIMIT_DATA"] = limits.memory_bytes
        if "pids" not in self._groups.controllers:
            found["RLIMIT_NPROC"] = limits.processes + _OWN_PROCESSES + self._others()
        return found

    def _others(self) -> int:
        """How many processes that limit counts already: all of a user's, unless the user is builds' own or namespaces count."""
        alone = self._confinement.private or self._uid is not None
        return 0 if alone else step_usage.threads_of(os.geteuid())


def _make(group: ControlGroup, limits: StepLimits) -> None:
    try:
        group.make(memory_bytes=limits.memory_bytes, processes=limits.processes + _OWN_PROCESSES)
    except OSError as error:
        raise Unavailable(f"the build sandbox's limits can't be set: {error.strerror}") from error


async def _end_or_limit(process: StepProcess, lines: Lines, watch: StepWatch, limits: StepLimits) -> Exceeded | None:
    """Wait for the end, or for a limit; gives the limit."""
    ended = asyncio.ensure_future(_ended(process, lines, limits.output_bytes))
    watching = asyncio.ensure_future(watch.exceeded())
    try:
        await asyncio.wait((ended, watching), timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return ended.result()
        return watching.result() if watching.done() else Exceeded.TIME
    finally:
        for task in (ended, watching):
            task.cancel()
        await asyncio.gather(ended, watching, return_exceptions=True)


async def _ended(process: StepProcess, lines: Lines, output_bytes: int) -> Exceeded | None:
    if await copy(process.output, lines, output_bytes):
        return Exceeded.OUTPUT
    await process.gone()
    return None
