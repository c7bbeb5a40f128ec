"""Starts instances as the launcher does: a listening socket made beforehand, an environment from nothing."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class RuntimeUnderTest:
    """How one runtime is started for a fixture handler.

    `name` is what it says in HELLO, `way` how it is started; `command` is the program; `fixtures` the folder of its
    handlers, where the logical name `echo` stands for the entrypoint `echo.handle`.
    """

    name: str
    command: tuple[str, ...]
    fixtures: Path
    way: str = "executed"


def _python() -> str:
    """python3.11, or the Python that runs the tests."""
    if sys.version_info[:2] == (3, 11):
        return os.path.realpath(sys.executable)
    return shutil.which("python3.11") or os.path.realpath(sys.executable)


_MAIN = str(HERE.parent / "python3.11" / "main.py")
RUNTIMES = (
    RuntimeUnderTest(
        name="python3.11",
        command=(_python(), "-I", "-S", _MAIN),
        fixtures=HERE / "fixtures" / "python3.11",
    ),
    RuntimeUnderTest(
        name="python3.11",
        command=(_python(), "-I", "-S", str(HERE / "loaded_ahead.py"), _MAIN),
        fixtures=HERE / "fixtures" / "python3.11",
        way="loaded-ahead",
    ),
)


@dataclass
class Instance:
    """A running instance. `path` is its unix socket; `stop` ends it whatever it does."""

    process: subprocess.Popen[bytes]
    path: str
    folder: Path
    _stopped: bool = field(default=False)

    @property
    def address(self) -> str:
        """As callers write it."""
        return f"unix:{self.path}"

    def output(self) -> tuple[bytes, bytes]:
        """What was written to the real file descriptors 1 and 2."""
        return (self.folder / "stdout").read_bytes(), (self.folder / "stderr").read_bytes()

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float = 15) -> int:
        """The exit code; TimeoutExpired when it does not end."""
        return self.process.wait(seconds)

    def stop(self) -> None:
        """Kill it and remove what it left."""
        if not self._stopped:
            self._stopped = True
            self.process.kill()
            self.process.wait()
            shutil.rmtree(self.folder)


def listening_socket(path: str) -> socket.socket:
    """The socket that the launcher makes before the instance exists."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(512)
    return listener


def start(
    runtime: RuntimeUnderTest,
    entrypoint: str,
    *,
    code: Path | None = None,
    concurrency: int = 16,
    grace_ms: int = 10_000,
    environment: Mapping[str, str] | None = None,
    listener: socket.socket | None = None,
) -> Instance:
    """Start an instance for an entrypoint in `code` (the runtime's fixtures unless given)."""
    folder = Path(tempfile.mkdtemp(prefix="sless-"))
    path = str(folder / "instance.sock")
    listening = listener or listening_socket(path)
    fd = listening.fileno()
    variables = {
        "PATH": os.environ["PATH"],
        "SLESS_LISTEN_FD": str(fd),
        "SLESS_CODE_DIR": str(code or runtime.fixtures),
        "SLESS_ENTRYPOINT": entrypoint,
        "SLESS_FUNCTION": "fixture",
        "SLESS_NAMESPACE": "sless-0123456789abcdef",
        "SLESS_VERSION": "7",
        "SLESS_INSTANCE": "i-0123456789abcdef",
        "SLESS_MAX_CONCURRENCY": str(concurrency),
        "SLESS_MEMORY_MB": "256",
        "SLESS_GRACE_MS": str(grace_ms),
        **(environment or {}),
    }
    try:
        with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            process = subprocess.Popen(
                runtime.command, env=variables, pass_fds=(fd,), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
    finally:
        if listener is None:
            listening.close()
    return Instance(process, path, folder)
