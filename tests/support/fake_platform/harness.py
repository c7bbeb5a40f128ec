"""Starting and watching a platform of fake services from a test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sless_cli.commands.status import status_of
from sless_cli.embedded.layout import layout
from sless_cli.errors import CliError

from tests.support.fake_platform.services import notes

REPOSITORY = Path(__file__).parents[3]
ORDINARY_UID = 12_345
"""An id without an entry in /etc/passwd, as containers often have."""

_PLENTY = 2 * 1024**3

T = TypeVar("T")


def eventually(what: Callable[[], T], *, limit: float = 10.0) -> T:
    """The first true answer of `what`, asked again and again."""
    until = time.monotonic() + limit
    while True:
        answer = what()
        if answer:
            return answer
        assert time.monotonic() < until, f"{what} did not become true within {limit} s"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@dataclass
class FakePlatform:
    """A platform in a folder of its own. `uid` None: the test's user."""

    folder: Path
    uid: int | None = None
    python: str = sys.executable
    environment: dict[str, str] = field(default_factory=dict)
    attached: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def log(self) -> str:
        """The platform's log since its last start."""
        return (self.data / "logs" / "platform.log").read_text()

    def conduct(self, **services: str) -> None:
        """Have services misbehave from their next start on; "" ends that."""
        (self.data / "conduct").mkdir(parents=True, exist_ok=True)
        for name, conduct in services.items():
            (self.data / "conduct" / name).write_text(conduct)
        for path in (self.data, *self.data.rglob("conduct"), *self.data.rglob("conduct/*")):
            if self.uid is not None:
                os.chown(path, self.uid, self.uid)

    def sless(self, *arguments: str, limit: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a command line to its end."""
        command = self._command(arguments)
        return subprocess.run(command, timeout=limit, capture_output=True, text=True, check=False, **self._how())

    def up(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Start in the background; it must succeed."""
        ended = self.sless("up", "--detach", "--port", "0", "--data", str(self.data), *arguments)
        assert ended.returncode == 0, ended.stderr
        return ended

    def up_attached(self, *arguments: str) -> subprocess.Popen[str]:
        """Start in the foreground, in a process group of its own."""
        started = subprocess.Popen(
            self._command(("up", "--port", "0", "--data", str(self.data), *arguments)),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0, **self._how(),
        )  # fmt: skip
        self.attached.append(started)
        return started

    def down(self) -> None:
        """Stop it; it must succeed."""
        ended = self.sless("down", "--data", str(self.data))
        assert ended.returncode == 0, ended.stderr

    def status(self) -> dict[str, Any]:
        """What `sless status` says, {} when it cannot."""
        try:
            return status_of(layout(self.data, {}))
        except CliError:
            return {}

    def service(self, name: str) -> dict[str, Any]:
        """One service's line of the status."""
        return next(each for each in self.status()["services"] if each["name"] == name)

    def pids(self) -> list[int]:
        """The supervisor's process and all of its children."""
        status = self.status()
        return [status["pid"], *(each["pid"] for each in status["services"])]

    def notes(self, name: str) -> list[dict[str, Any]]:
        """What a service noted at its starts."""
        return notes(self.data, name)

    def clean_up(self) -> None:
        """Stop whatever runs, and remove everything."""
        self.sless("down", "--data", str(self.data))
        for process in self.attached:
            if process.poll() is None:
                process.kill()
            process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        # Only the platform itself is fake; the other commands are as they are.
        module = "tests.support.fake_platform" if arguments[0] == "up" else "sless_cli"
        return [self.python, "-m", module, *arguments]

    def _how(self) -> dict[str, Any]:
        environment = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)]),
            **self.environment,
        }
        user = {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}
        return {"cwd": REPOSITORY, "env": environment, **user}


@contextmanager
def fake_platform(uid: int | None = None, template: Path | None = None) -> Iterator[FakePlatform]:
    """A platform that does not run. `template`: a data folder to begin with, which spares the first start's work."""
    # Not below pytest's folder, which nobody else may enter.
    folder = Path(tempfile.mkdtemp(prefix="fp-", dir=_fast_folder()))
    if uid is not None:
        os.chown(folder, uid, uid)
    found = FakePlatform(folder, uid, python=sys.executable if uid is None else _python_for(uid))
    if template is not None:
        subprocess.run(["cp", "-a", str(template), str(found.data)], check=True)
    try:
        yield found
    finally:
        found.clean_up()


def _fast_folder() -> str | None:
    """Memory where there is plenty: the database writes everything through to its disk, which others use as well."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > _PLENTY else None


def _python_for(uid: int) -> str:
    """An interpreter that this user may run, with all that the platform imports. Skips the test when there is none."""
    path = os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])
    for candidate in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}", "/usr/local/bin/python3"):
        try:
            tried = subprocess.run(
                [candidate, "-c", "import sless_cli.main, asyncpg, cryptography, pydantic_core"],
                user=uid, group=uid, extra_groups=[], env={"PYTHONPATH": path}, cwd="/", capture_output=True, check=False,
            )  # fmt: skip
        except OSError:
            continue
        if tried.returncode == 0:
            return candidate
    pytest.skip("no interpreter that an ordinary user may run")


def kill(*pids: int) -> None:
    """kill -9, and wait until they are gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for pid in pids:
        eventually(lambda pid=pid: not is_running(pid))  # type: ignore[misc]
