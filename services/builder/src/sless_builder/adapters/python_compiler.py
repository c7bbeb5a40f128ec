"""Compiler: the runtime's own interpreter in a process of its own, fed through pipes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Final, TypeAlias

from sless_platform.errors import Unavailable
from sless_platform.logging import get_logger

from sless_builder.adapters.bubblewrap import Bubblewrap, View
from sless_builder.adapters.interpreter import interpreter_files
from sless_builder.application.finishing import to_its_end
from sless_builder.domain.build import Problem
from sless_builder.domain.imports import Import
from sless_builder.ports import Module

_PROGRAM: Final = Path(__file__).with_name("compile_program.py")
_MAX_ANSWER_BYTES: Final = 256 << 20
_STDERR_BYTES: Final = 2_000
_CHUNK_BYTES: Final = 1 << 20
_END_SEC: Final = 2
_COOKIE: Final = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]{1,40})")
_MAX_COOKIE_BYTES: Final = 1_000
_MAX_ENCODINGS: Final = 20
_OWN_FAULT: Final = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGXCPU}
"""How a compiler ends that a source has broken; SIGKILL is the system's way to get memory back."""

_SIGNALLED: Final = 128

Start: TypeAlias = Callable[[Sequence[str]], "subprocess.Popen[bytes]"]

log = get_logger(__name__)


class PythonCompiler:
    """Runs `python` (the runtime's interpreter) as user `uid`, None for this process's own; in `bubblewrap` where there is one."""

    def __init__(
        self, python: Path, *, uid: int | None, cpu: timedelta, memory_bytes: int, bubblewrap: Bubblewrap | None
    ) -> None:
        self._python = python
        self._arguments = (str(uid or 0), str(int(cpu.total_seconds())), str(memory_bytes))
        self._bubblewrap = bubblewrap
        self._wanted = asyncio.Event()
        self._spare: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """See Compiler. Nothing happens unless `run` runs."""
        self._wanted.set()

    async def run(self) -> None:
        """Have a sandbox ready whenever no session is under way, until cancelled: its start is most of a small build's time."""
        self._wanted.set()
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                if not _lives(self._spare):
                    await self._discard()
                    with suppress(OSError):  # the build itself tells what is wrong
                        await to_its_end(asyncio.to_thread(self._start_spare))
        finally:
            await self._discard()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[PythonCompilation]:
        """See Compiler."""
        if not _lives(self._spare):
            await self._discard()
        spare, self._spare = self._spare, None
        compilation = PythonCompilation(self._start, spare)
        try:
            yield compilation
        finally:
            await compilation.close()
            self._wanted.set()

    def _start_spare(self) -> None:
        self._spare = self._start(())

    def _start(self, encodings: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process that knows these encodings. Blocks. Raises OSError."""
        python = self._python.resolve()
        command = (str(python), "-I", "-S", "-B", "-W", "ignore", str(_PROGRAM), *self._arguments, *encodings)
        if self._bubblewrap is None:
            return _started(command)
        return _started(self._bubblewrap.command(View((_PROGRAM, *interpreter_files(python))), command))

    async def _discard(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            await PythonCompilation(self._start, spare).close()


class PythonCompilation:
    """One process at a time; a source that breaks it costs no other source anything."""

    def __init__(self, start: Start, process: subprocess.Popen[bytes] | None = None) -> None:
        """`process`: one that was started already, without further encodings."""
        self._start = start
        self._encodings: list[str] = []
        self._process = process

    async def compile(self, path: str, source: bytes) -> Module | Problem:
        """See Compilation."""
        encoding = _declared_encoding(source)
        if encoding and encoding not in self._encodings and len(self._encodings) < _MAX_ENCODINGS:
            # A process reads encodings before it gives up its user, who need not be able to read the interpreter's files.
            await self.close()
            self._encodings.append(encoding)
        process = self._process or await self._started()
        asking = asyncio.ensure_future(asyncio.to_thread(_ask, process, path.encode(), source))
        try:
            kind, answer = await asyncio.shield(asking)
        except _Ended:
            self._process = None
            return await to_its_end(asyncio.to_thread(_explained, process, path))
        except asyncio.CancelledError:
            _kill(process)  # which ends the thread's wait
            await asyncio.wait([asking])
            asking.exception()
            raise
        return _module(answer) if kind == b"+" else _problem(path, answer)

    async def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
            await to_its_end(asyncio.to_thread(_reaped, process))

    async def _started(self) -> subprocess.Popen[bytes]:
        def start() -> subprocess.Popen[bytes]:
            # Kept here, so that a cancelled caller finds it to close.
            self._process = self._start(self._encodings)
            return self._process

        try:
            return await to_its_end(asyncio.to_thread(start))
        except OSError as error:
            raise Unavailable(f"the runtime's interpreter can't be started: {error}") from error


class _Ended(Exception):
    """The process ended, or answers nonsense."""


def _declared_encoding(source: bytes) -> str | None:
    """The encoding that one of the first two lines names, if it is not UTF-8 (PEP 263)."""
    for line in source[:_MAX_COOKIE_BYTES].splitlines()[:2]:
        if found := _COOKIE.match(line):
            name = found[1].decode().lower()
            return None if name in ("utf-8", "utf8") else name
    return None


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    # Not the event loop's own way to make processes: uvloop forks, and gRPC's handlers for that now and then crash the child
    # before it is anything else. Popen uses vfork, which runs no handlers.
    return subprocess.Popen(
        command,
        cwd="/",
        env={},
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )


def _lives(process: subprocess.Popen[bytes] | None) -> bool:
    return process is not None and process.poll() is None


def _ask(process: subprocess.Popen[bytes], path: bytes, source: bytes) -> tuple[bytes, bytes]:
    """Give the process one source and wait for its answer. Raises _Ended."""
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both were asked for
    request = memoryview(len(path).to_bytes(4, "big") + len(source).to_bytes(4, "big") + path + source)
    try:
        while request:
            request = request[process.stdin.write(request) :]
    except OSError:
        raise _Ended from None
    head = _read(process.stdout, 5)
    size = int.from_bytes(head[1:], "big")
    if size > _MAX_ANSWER_BYTES:
        raise _Ended
    return head[:1], _read(process.stdout, size)


def _read(file: IO[bytes], count: int) -> bytes:
    parts = []
    while count:
        part = file.read(min(count, _CHUNK_BYTES))
        if not part:
            raise _Ended
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _explained(process: subprocess.Popen[bytes], path: str) -> Problem:
    """What a process that ended means for the source that it had. Raises Unavailable when it means nothing for that."""
    try:
        process.wait(_END_SEC)
    except subprocess.TimeoutExpired:
        _kill(process)
    said = _reaped(process)
    # bubblewrap says it as a shell does.
    code = process.returncode if process.returncode <= _SIGNALLED else _SIGNALLED - process.returncode
    if -code in _OWN_FAULT:
        name = signal.Signals(-code).name
        return Problem("COMPILER_CRASHED", f"{path} can't be compiled: Python ended with {name} on it", file=path)
    log.warning("compiler ended", code=code, said=said[-_STDERR_BYTES:].decode(errors="replace"))
    how = "was killed, perhaps for want of memory" if code == -signal.SIGKILL else f"ended with code {code}"
    raise Unavailable(f"the compiler {how}")


def _reaped(process: subprocess.Popen[bytes]) -> bytes:
    """Wait until a process that was killed is gone, with what bubblewrap began for it; gives what it said last."""
    process.wait()
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
    process.stdin.close()
    with process.stdout, process.stderr:
        while process.stdout.read(_CHUNK_BYTES):  # whose end comes when nobody is left
            pass
        return process.stderr.read(_CHUNK_BYTES)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process with all that it may have begun: it leads a group of its own."""
    if process.returncode is None:  # else its number may be another's by now
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _module(answer: bytes) -> Module:
    size = int.from_bytes(answer[:4], "big")
    told = answer[4 : 4 + size].decode(errors="replace")
    return Module(answer[4 + size :], tuple(_import(line) for line in told.splitlines()))


def _import(line: str) -> Import:
    number, level, guarded, module, names = line.split(" ")
    return Import(int(number), int(level), module, tuple(filter(None, names.split(","))), guarded == "1")


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
