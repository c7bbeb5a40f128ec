"""One process of the runtime that serves the handler, and the connection to it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from sless_calls import Connection, LogLine, NotReachable

from sless_cli.dev.program import Program
from sless_cli.embedded.linux import die_with_parent
from sless_cli.errors import StartFailed

LOAD_LIMIT: Final = timedelta(minutes=10)
"""A handler's module may take long to load; saving it again ends the wait."""
GRACE_SEC: Final = 10.0
"""What calls that run may take when the code has changed."""
LEAVE_SEC: Final = 2.0
"""What is left to the handler's own clean-up when everything ends."""

TakeLines = Callable[[list[LogLine]], None]
Observer = Callable[[Connection], None]


@dataclass(frozen=True, slots=True)
class Runtime:
    """python     interpreter of runtime python3.11
    start      its start program
    code       folder with the handler
    run        folder for sockets, and for what the handler writes to HOME and TMPDIR
    """

    python: Path
    start: Path
    code: Path
    run: Path


def compiled(start: Path, python: Path, folder: Path) -> Path:
    """A copy of the runtime in `folder` with its bytecode, so that a process starts in a third of the time; its start
    program. Raises StartFailed."""
    copy = folder / start.parent.name
    try:
        shutil.copytree(start.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run([python, "-I", "-S", "-m", "compileall", "-q", copy], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise StartFailed(f"the runtime {start.parent} cannot be copied and compiled: {error}") from error
    return copy / start.name


class Child:
    """Made by `start`. `connection` is open when it is; `stop` must be awaited, whatever happens."""

    def __init__(self, process: asyncio.subprocess.Process, address: Path) -> None:
        """For `start` alone."""
        self._process = process
        self._address = address
        self.connection: Connection

    @classmethod
    async def start(
        cls,
        runtime: Runtime,
        program: Program,
        dependencies: Path | None,
        *,
        on_log: TakeLines,
        on_drain: Observer,
        on_close: Observer,
    ) -> Child:
        """Start a process and wait until its handler is loaded.

        Raises LoadFailed when it cannot be, NotReachable when the process ends instead. When cancelled it leaves nothing.
        """
        address = runtime.run / f"{os.urandom(4).hex()}.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(address))
            listener.listen(512)
            environment = _environment(runtime, program, dependencies, listener.fileno())
            child = cls(await _spawn(runtime, environment, listener.fileno()), address)
        try:
            child.connection = await Connection.open(
                f"unix:{address}",
                role="runtime-manager",
                open_timeout=LOAD_LIMIT,
                on_log=on_log,
                on_drain=on_drain,
                on_close=on_close,
            )
        except NotReachable as error:
            await child.stop(0)
            raise NotReachable(f"the process ended before it could serve ({child.ending})") from error
        except BaseException:
            await child.stop(0)
            raise
        return child

    @property
    def ending(self) -> str:
        """How the process ended, in words."""
        code = self._process.returncode
        if code is None:
            return "still running"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    async def ended(self) -> None:
        """Wait until the process has ended."""
        await self._process.wait()

    async def stop(self, grace_sec: float) -> None:
        """Let its calls come to their end, this long at most; then nothing of it, and of what it started, is left."""
        try:
            if self._process.returncode is None and grace_sec > 0:
                self._process.send_signal(signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(grace_sec):
                        await self._process.wait()
        finally:
            # The process leads a group of its own, with all that the handler started.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            self._address.unlink(missing_ok=True)


async def _spawn(runtime: Runtime, environment: Mapping[str, str], listener: int) -> asyncio.subprocess.Process:
    parent = os.getpid()
    return await asyncio.create_subprocess_exec(
        # -B: a module saved twice in a second could be taken from the bytecode of the first save.
        *(str(runtime.python), "-I", "-S", "-B", str(runtime.start)),
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        pass_fds=(listener,),
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
    )


def _environment(runtime: Runtime, program: Program, dependencies: Path | None, listener: int) -> dict[str, str]:
    """As an instance has it: nothing of this shell's."""
    own = str(runtime.run / "home")
    return {
        "PATH": f"{runtime.python.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": own,
        "TMPDIR": own,
        "LANG": "C.UTF-8",
        **program.variables,
        **({"SLESS_DEPENDENCIES_DIR": str(dependencies)} if dependencies is not None else {}),
        "SLESS_LISTEN_FD": str(listener),
        "SLESS_CODE_DIR": str(runtime.code),
        "SLESS_ENTRYPOINT": program.entrypoint,
        "SLESS_FUNCTION": program.name,
        "SLESS_GRACE_MS": str(round(GRACE_SEC * 1000)),
        "SLESS_INSTANCE": "local",
        "SLESS_MAX_CONCURRENCY": str(program.concurrency),
        "SLESS_MEMORY_MB": str(program.memory_mb),
        "SLESS_NAMESPACE": "local",
        "SLESS_VERSION": "0",
    }
