"""Compiler: the runtime's own interpreter in a process of its own, fed through pipes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from sless_platform.errors import Unavailable
from sless_platform.logging import get_logger

from sless_builder.domain.build import Problem

_PROGRAM: Final = Path(__file__).with_name("compile_program.py")
_MAX_ANSWER_BYTES: Final = 256 << 20
_STDERR_BYTES: Final = 2_000
_OWN_FAULT: Final = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGXCPU}
"""How a compiler ends that a source has broken; SIGKILL is the system's way to get memory back."""

log = get_logger(__name__)


class PythonCompiler:
    """Runs `python` (the runtime's interpreter) as user `uid`, None for this process's own."""

    def __init__(self, python: Path, *, uid: int | None, cpu: timedelta, memory_bytes: int) -> None:
        self._command = [
            *(str(python), "-I", "-S", "-B", "-W", "ignore", str(_PROGRAM)),
            *(str(uid or 0), str(int(cpu.total_seconds())), str(memory_bytes)),
        ]

    @asynccontextmanager
    async def session(self) -> AsyncIterator[PythonCompilation]:
        """See Compiler."""
        compilation = PythonCompilation(self._command)
        try:
            yield compilation
        finally:
            await compilation.close()


class PythonCompilation:
    """One process at a time; a source that breaks it costs no other source anything."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    async def compile(self, path: str, source: bytes) -> bytes | Problem:
        """See Compilation."""
        process = self._process or await self._started()
        try:
            kind, answer = await self._asked(process, path.encode(), source)
        except (asyncio.IncompleteReadError, ConnectionError):
            return await self._broken(process, path)
        return answer if kind == b"+" else _problem(path, answer)

    async def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        # Reads what is left, so that no pipe's end stays behind.
        await process.communicate()

    async def _started(self) -> asyncio.subprocess.Process:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd="/",
                env={},
                start_new_session=True,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise Unavailable(f"the runtime's interpreter {self._command[0]} can't be started: {error}") from error
        return self._process

    async def _asked(self, process: asyncio.subprocess.Process, path: bytes, source: bytes) -> tuple[bytes, bytes]:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both were asked for
        process.stdin.write(len(path).to_bytes(4, "big") + len(source).to_bytes(4, "big") + path + source)
        await process.stdin.drain()
        head = await process.stdout.readexactly(5)
        size = int.from_bytes(head[1:], "big")
        if size > _MAX_ANSWER_BYTES:
            raise ConnectionError(f"the compiler answers {size} bytes")
        return head[:1], await process.stdout.readexactly(size)

    async def _broken(self, process: asyncio.subprocess.Process, path: str) -> Problem:
        """What a process that ended means for the source that it had."""
        self._process = None
        with suppress(ProcessLookupError):
            if process.returncode is None and process.stdout is not None and not process.stdout.at_eof():
                process.kill()
        _, said = await process.communicate()
        code = process.returncode or 0
        if -code in _OWN_FAULT:
            name = signal.Signals(-code).name
            return Problem("COMPILER_CRASHED", f"{path} can't be compiled: Python ended with {name} on it", file=path)
        log.warning("compiler ended", code=code, said=said[-_STDERR_BYTES:].decode(errors="replace"))
        how = "was killed, perhaps for want of memory" if code == -signal.SIGKILL else f"ended with code {code}"
        raise Unavailable(f"the compiler {how}")


def _problem(path: str, answer: bytes) -> Problem:
    kind, line, column, message, text = (*answer.decode(errors="replace").split("\0"), "", "", "", "", "")[:5]
    number = int(line) if line.isdecimal() else 0
    if kind not in ("SyntaxError", "IndentationError", "TabError"):
        return Problem("COMPILE_FAILED", f"{path} can't be compiled: {kind}: {message}", file=path, line=number)
    where = f"{path} line {number}" if number else path
    return Problem("SYNTAX_ERROR", f"{where}: {message}", file=path, line=number, quote=_quoted(text, column))


def _quoted(text: str, column: str) -> str:
    """The line as it stands, and a mark below the place."""
    line = text.rstrip("\n")
    if not line.strip():
        return ""
    shown = line.lstrip()
    at = int(column) - 1 - (len(line) - len(shown)) if column.isdecimal() else -1
    return shown if not 0 <= at <= len(shown) else f"{shown}\n{' ' * at}^"
