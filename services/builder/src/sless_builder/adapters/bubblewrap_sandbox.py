"""Sandbox: bubblewrap, with a user of its own and limits."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from sless_builder.adapters.bubblewrap import Bubblewrap, View
from sless_builder.adapters.step_process import Lines, StepProcess, copy, start
from sless_builder.application.finishing import in_thread, to_its_end
from sless_builder.domain.steps import Exceeded, Step, StepEnd, StepLimits

_PROGRAM: Final = Path(__file__).with_name("step_program.py")
_TMP_BYTES: Final = 256 << 20
_FILES: Final = 4_096


class BubblewrapSandbox:
    """Runs steps as user `uid`, None for this process's own. `python` starts them."""

    def __init__(self, bubblewrap: Bubblewrap, *, python: Path, uid: int | None) -> None:
        self._bubblewrap = bubblewrap
        self._python = python.resolve()
        self._uid = uid

    async def run(self, step: Step, output: Callable[[str], None]) -> StepEnd:
        """See Sandbox."""
        if self._uid is not None:
            await in_thread(_give, step.writable, self._uid)
        lines = Lines(output)
        async with self._running(step) as process:
            exceeded = await _watched(process, lines, step.limits)
            if exceeded is not None:
                process.kill()
            await process.gone()
            code, signal = (None, None) if exceeded is not None else process.end()
        lines.close()
        return StepEnd(code, signal, exceeded)

    @asynccontextmanager
    async def _running(self, step: Step) -> AsyncIterator[StepProcess]:
        started: list[StepProcess] = []
        try:
            await in_thread(
                lambda: started.append(start(lambda gate, status: self._command(step, gate, status), step.env))
            )
            started[0].go()
            yield started[0]
        finally:
            for process in started:
                process.kill()
                await to_its_end(process.gone())
                process.close()

    def _command(self, step: Step, gate: int, status: int) -> list[str]:
        view = View((*step.shown, _PROGRAM, *interpreter(self._python)), step.writable, step.network, _TMP_BYTES)
        limits = {
            "RLIMIT_FSIZE": step.limits.disk_bytes,
            "RLIMIT_NPROC": step.limits.processes,
            "RLIMIT_NOFILE": _FILES,
            "RLIMIT_CORE": 0,
        }
        asked = json.dumps(
            {"gate": gate, "uid": self._uid or 0, "cwd": str(step.cwd), "env": [*step.env], "limits": limits}
        )
        inside = (str(self._python), "-I", "-S", "-B", str(_PROGRAM), asked, *step.argv)
        return self._bubblewrap.command(view, inside, more=("--json-status-fd", str(status)))


async def _watched(process: StepProcess, lines: Lines, limits: StepLimits) -> Exceeded | None:
    """Wait for the end, or for a limit; gives the limit."""
    copying = asyncio.ensure_future(copy(process.output, lines, limits.output_bytes))
    try:
        async with asyncio.timeout(limits.seconds):
            if await copying:
                return Exceeded.OUTPUT
            await process.gone()
    except TimeoutError:
        return Exceeded.TIME
    finally:
        copying.cancel()
        with suppress(asyncio.CancelledError):
            await copying
    return None


def interpreter(python: Path) -> Sequence[Path]:
    """What an interpreter needs beside the system's libraries: the folder it is installed in."""
    prefix = python.parent.parent
    return () if prefix in (Path("/"), Path("/usr")) else (prefix,)


def _give(folders: Sequence[Path], uid: int) -> None:
    """Make folders, and what is in them, the user's."""
    for folder in folders:
        os.chown(folder, uid, uid, follow_symlinks=False)
        for parent, names, files in os.walk(folder):
            for name in (*names, *files):
                os.chown(os.path.join(parent, name), uid, uid, follow_symlinks=False)
