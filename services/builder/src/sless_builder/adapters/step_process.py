"""A sandbox's processes: how they are started, what they print, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any, Final

from sless_platform.errors import Unavailable

_CHUNK_BYTES: Final = 1 << 16
_LINE_BYTES: Final = 8_192
_SAID_BYTES: Final = 2_000
_SIGNALLED: Final = 128
_START_SEC: Final = 20


class StepProcess:
    """A sandbox, and what runs in it, which waits until `go`.

    init     the process whose end is the end of all.
    private  whether that is so because they are one pid namespace; else init is a keeper, which ends the others when
             nobody is at the gate any more.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        gate: socket.socket,
        status: IO[bytes],
        *,
        init: int,
        init_fd: int,
        private: bool,
    ) -> None:
        self.init = init
        self.private = private
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._init_fd = init_fd
        self._gate = gate
        self._status = status

    @property
    def pid(self) -> int:
        """The process that all others come of."""
        return self._process.pid

    @property
    def output(self) -> int:
        """Where stdout and stderr are read; does not block."""
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        return self._process.stdout.fileno()

    def go(self) -> None:
        """Let the program begin."""
        with suppress(OSError):  # it is gone already: `end` says why
            self._gate.send(b"+")

    async def gone(self) -> None:
        """Wait until every process is gone."""
        await _readable(self._pidfd)
        await _readable(self._init_fd)

    def kill(self) -> None:
        """Kill all of them. Nothing when they are gone."""
        if not self.private:
            with suppress(OSError):
                self._gate.shutdown(socket.SHUT_RDWR)
            return
        for number in (self._init_fd, self._pidfd):
            _killed(number)

    def end(self) -> tuple[int | None, int | None]:
        """The program's exit code or its signal, after `gone`. Raises Unavailable when there was no program at all."""
        self._process.wait()
        code = _told(self._status.read(), "exit-code")
        if code is None:
            raise Unavailable("the build sandbox failed")
        return (None, code - _SIGNALLED) if _is_signal(code) else (code, None)

    def close(self) -> None:
        """Give everything back, after `gone`."""
        self._process.wait()
        for number in (self._pidfd, self._init_fd):
            os.close(number)
        self._gate.close()
        self._status.close()
        assert self._process.stdout is not None  # noqa: S101
        self._process.stdout.close()


def start(command: Callable[[int, int], Sequence[str]], env: Mapping[str, str], *, private: bool) -> StepProcess:
    """Start a sandbox; `command` gets two descriptors' numbers: the program's gate, and where its status is told. Blocks.

    Raises Unavailable when no sandbox can be made.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        gate, inner_gate = (
            stack.enter_context(end) for stack, end in zip((ours, theirs), socket.socketpair(), strict=True)
        )
        status, told = (
            stack.enter_context(os.fdopen(end, mode))
            for stack, end, mode in zip((ours, theirs), os.pipe(), ("rb", "wb"), strict=True)
        )
        numbers = (inner_gate.fileno(), told.fileno())
        try:
            # See python_compiler on why not the event loop's own way.
            process = subprocess.Popen(
                command(*numbers),
                cwd="/",
                env=env,
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise Unavailable(f"the build sandbox can't be started: {error.strerror}") from error
        theirs.close()
        started = _started(process, gate, status, private=private)
        ours.pop_all()
        return started


def _started(process: subprocess.Popen[bytes], gate: socket.socket, status: IO[bytes], *, private: bool) -> StepProcess:
    """The sandbox once its program waits at the gate.

    Only then is it sure that all of it ends with this process, however that ends: the kernel was told so by then.
    """
    init = _told(status.readline(), "child-pid")
    init_fd = None if init is None else _opened(init)
    if init is None or init_fd is None or not _ready(gate):
        gate.close()
        process.kill()
        if init_fd is not None:
            _killed(init_fd)
            select.select([init_fd], [], [])
            os.close(init_fd)
        said = process.communicate()[0][-_SAID_BYTES:].decode(errors="replace").strip()
        raise Unavailable(f"the build sandbox can't be started: {said or 'it says nothing'}")
    assert process.stdout is not None  # noqa: S101
    os.set_blocking(process.stdout.fileno(), False)
    return StepProcess(process, gate, status, init=init, init_fd=init_fd, private=private)


def _killed(pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _ready(gate: socket.socket) -> bool:
    gate.settimeout(_START_SEC)
    try:
        return bool(gate.recv(1))
    except OSError:
        return False


def _opened(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


class Lines:
    """Turns what comes into whole lines; an endless one is cut into pieces."""

    def __init__(self, output: Callable[[str], None]) -> None:
        self._output = output
        self._rest = b""
        self.bytes = 0

    def feed(self, data: bytes) -> None:
        """Take what came."""
        self.bytes += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._put(line)
        while len(self._rest) > _LINE_BYTES:
            self._put(self._rest[:_LINE_BYTES])
            self._rest = self._rest[_LINE_BYTES:]

    def close(self) -> None:
        """There is no more."""
        if self._rest:
            self._put(self._rest)
        self._rest = b""

    def _put(self, line: bytes) -> None:
        self._output(line.decode(errors="replace").rstrip("\r"))


async def copy(number: int, lines: Lines, most: int) -> bool:
    """Feed what can be read to `lines` until its end; gives whether more came than `most` bytes, which ends it early."""
    while True:
        await _readable(number)
        try:
            data = os.read(number, min(_CHUNK_BYTES, most - lines.bytes + 1))
        except BlockingIOError:
            continue
        if not data:
            return False
        if lines.bytes + len(data) > most:
            lines.feed(data[: most - lines.bytes])
            return True
        lines.feed(data)


async def _readable(number: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(number, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(number)


def _told(text: bytes, key: str) -> int | None:
    for line in text.splitlines():
        with suppress(ValueError):
            document: dict[str, Any] = json.loads(line)
            if key in document:
                return int(document[key])
    return None


def _is_signal(code: int) -> bool:
    return code > _SIGNALLED and code - _SIGNALLED in set(signal.Signals)
