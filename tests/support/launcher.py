"""A real launcher in a process of its own, under each of the conditions that it may meet, and a plain client of it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sless_runtime_manager import launcher as launcher_package
from sless_runtime_manager.adapters.local.interpreters import Interpreter, inspect
from sless_runtime_manager.launcher import cgroup_search, landlock

LAUNCHER = Path(launcher_package.__file__).parent
ORDINARY_UID = 23_456
UID_BASE = 300_000
PATIENCE_SEC = 20.0

Message = dict[str, Any]

_NUMBERS = itertools.count(1)

# Each runs in place of the launcher's first moments, as the launcher's user, and takes something away from it.
_FORBID = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def need(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def put(path, text):
    with open(path, "w") as file:
        file.write(text)
def no_user_namespaces():
    own, (ready, set_ready) = os.getpid(), os.pipe()
    ids = f"{os.getuid()} {os.getuid()} 1" if os.getuid() else "0 0 4294967295"
    helper = os.fork()
    if helper == 0:  # Only a process outside may map more than its own id.
        os.read(ready, 1)
        if os.getuid():
            put(f"/proc/{own}/setgroups", "deny")
        put(f"/proc/{own}/gid_map", ids)
        put(f"/proc/{own}/uid_map", ids)
        os._exit(0)
    need(libc.unshare(0x10000000))
    os.write(set_ready, b"1")
    assert os.waitpid(helper, 0)[1] == 0
    put("/proc/sys/user/max_user_namespaces", "0")
"""
_NO_ADMIN = _FORBID + "need(libc.prctl(24, 21, 0, 0, 0))\n"  # PR_CAPBSET_DROP, CAP_SYS_ADMIN
_NO_USER_NAMESPACES = _FORBID + "no_user_namespaces()\n"
_OLD_KERNEL = """
import errno, os, sys, types
sys.modules["launcher"] = types.ModuleType("launcher")
sys.modules["launcher"].__path__ = [os.path.dirname(sys.argv[1])]
from launcher import server, syscalls
known = syscalls._syscall
def lacking(number, *arguments):
    if number in (436, 442):
        syscalls.ctypes.set_errno(errno.ENOSYS)
        return -1
    return known(number, *arguments)
syscalls._syscall = lacking
sys.exit(server.main(sys.argv[2:]))
"""
_MEMINFO = """
import os, sys, types
sys.modules["launcher"] = types.ModuleType("launcher")
sys.modules["launcher"].__path__ = [os.path.dirname(sys.argv[1])]
from launcher import admission, server
admission.MEMINFO = sys.argv[2]
sys.exit(server.main(sys.argv[3:]))
"""
_EXEC = "os.execve(sys.executable, [sys.executable, *sys.argv[1:]], {})\n"


@dataclass(frozen=True)
class Conditions:
    """Under which a launcher is started.

    uid     the user it runs as; 0 only where the tests run as root.
    forbid  Python that takes something away first.
    level   what it must report then; None where that is the machine's to say.
    old     an older kernel: without close_range(2) and mount_setattr(2).
    meminfo a file that stands for /proc/meminfo.
    demanded  the level that is asked for.
    given   control groups of its own are given to the user, as an administrator would.
    """

    name: str
    uid: int
    forbid: str = ""
    level: str | None = None
    old: bool = False
    given: bool = False
    meminfo: str = ""
    demanded: str = ""


WITHOUT_NAMESPACES = "landlock" if landlock.version() else "none"
"""The level where namespaces can't be used."""


def conditions() -> list[Conditions]:
    """All that this machine allows to try."""
    own = os.getuid()
    ordinary = ORDINARY_UID if own == 0 else own
    tried = [
        Conditions("ordinary", ordinary),
        Conditions("ordinary, no user namespaces", ordinary, _NO_USER_NAMESPACES, WITHOUT_NAMESPACES),
        Conditions("ordinary, none", ordinary, level="none", demanded="none"),
    ]
    if own == 0:
        tried += [
            Conditions("root", 0),
            Conditions("root, no user namespaces", 0, _NO_USER_NAMESPACES),
            Conditions("root, no mounts", 0, _NO_ADMIN, WITHOUT_NAMESPACES),
            Conditions("root, none", 0, level="none", demanded="none"),
        ]
        if own_groups():
            tried.append(Conditions("ordinary, own control groups", ordinary, given=True))
    return tried


def own_groups() -> list[Path]:
    """This process's groups in the hierarchies (version 1) that limit memory and processes; none where it may not write to them."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    paths = [Path(f"/sys/fs/cgroup/{name}{group}") for _, name, group in lines if name in ("memory", "pids")]
    return paths if len(paths) == 2 and all(os.access(path, os.W_OK) for path in paths) else []


@contextmanager
def _given_groups(under: Conditions) -> Iterator[str]:
    """Groups that belong to the user, and Python by which its process enters them."""
    folders = [path / f"sless-test-{os.getpid()}-{next(_NUMBERS)}" for path in own_groups()] if under.given else []
    try:
        for folder in folders:
            folder.mkdir()
            for path in (folder, folder / "cgroup.procs"):
                os.chown(path, under.uid, under.uid)
        enter = [f"put({str(folder / 'cgroup.procs')!r}, '0')\n" for folder in folders]
        yield _FORBID + "".join(enter) if enter else ""
    finally:
        for folder in folders:
            wait_until(lambda folder=folder: _is_removed(folder), f"{folder} to be left by all processes")  # type: ignore[misc]


def _is_removed(folder: Path) -> bool:
    """Whether the control group is away, with what a launcher that was killed has left in it."""
    for path in sorted({folder, *folder.glob("**/")}, reverse=True):
        with suppress(OSError):
            path.rmdir()
    return not folder.exists()


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """This process as that user, where it is root: the launcher serves its own user alone."""
    own = os.geteuid()
    if own != uid:
        os.seteuid(uid)
    try:
        yield
    finally:
        if own != uid:
            os.seteuid(own)


class LauncherClient:
    """One connection. Events that come while an answer is awaited are kept in `events`."""

    def __init__(self, path: Path, uid: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_SEC)
        with acting_as(uid):
            self._socket.connect(str(path))
        self._file = self._socket.makefile("rwb")
        self._number = 0
        self.events: list[Message] = []
        self.answers: dict[int, Message] = {}

    def send(self, op: str, **fields: Any) -> int:
        """A request; its id."""
        self._number += 1
        self._file.write(json.dumps({"id": self._number, "op": op, **fields}).encode() + b"\n")
        self._file.flush()
        return self._number

    def receive(self) -> Message:
        """The next message."""
        line = self._file.readline()
        if not line:
            raise EOFError("the launcher closed the connection")
        message: Message = json.loads(line)
        return message

    def answer(self, number: int) -> Message:
        """The answer to that request."""
        while number not in self.answers:
            self._keep(self.receive())
        return self.answers.pop(number)

    def _keep(self, message: Message) -> None:
        if "id" in message:
            self.answers[message["id"]] = message
        else:
            self.events.append(message)

    def call(self, op: str, **fields: Any) -> Message:
        """A request's result; AssertionError for an error."""
        answer = self.answer(self.send(op, **fields))
        assert "result" in answer, answer
        result: Message = answer["result"]
        return result

    def error(self, op: str, **fields: Any) -> Message:
        """A request's error."""
        answer = self.answer(self.send(op, **fields))
        assert "error" in answer, answer
        error: Message = answer["error"]
        return error

    def event(self, accepts: Callable[[Message], bool]) -> Message:
        """The next event that is accepted; others stay."""
        looked_at = 0
        while True:
            for position in range(looked_at, len(self.events)):
                if accepts(self.events[position]):
                    return self.events.pop(position)
            looked_at = len(self.events)
            self._keep(self.receive())

    def ended(self, instance_id: str) -> Message:
        """The instance's end."""
        return self.event(lambda event: event["event"] == "ended" and event["instance_id"] == instance_id)

    def printed(self, instance_id: str, text: str) -> Message:
        """The next output of the instance that has this text."""
        return self.event(lambda event: event["instance_id"] == instance_id and text in event.get("text", ""))

    def close(self) -> None:
        """Disconnect."""
        with suppress(OSError):
            self._file.close()
        self._socket.close()


@dataclass
class Launcher:
    """A launcher that runs and listens at `socket`. `data` is a private folder such as the platform keeps its secrets in."""

    base: Path
    conditions: Conditions
    python: Interpreter
    process: subprocess.Popen[bytes]
    socket: Path
    clients: list[LauncherClient] = field(default_factory=list)

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.base / "run"

    @property
    def data(self) -> Path:
        """A data folder."""
        return self.base / "data"

    def connect(self) -> LauncherClient:
        """A new client."""
        client = LauncherClient(self.socket, self.conditions.uid)
        self.clients.append(client)
        return client

    def spec(self, instance_id: str, code: str, **fields: Any) -> Message:
        """A spec that runs this Python code."""
        return {
            "instance_id": instance_id,
            "uid_index": 0,
            "argv": [str(self.python.executable), "-I", "-S", "-c", code],
            "env": {"PATH": "/usr/bin:/bin", "HOME": "/tmp"},
            "prefixes": self.python.exposed([]),
            "layers": [],
            "memory_mb": 128,
            "allowance_mb": 64,
            **fields,
        }

    def limit(self, resource: str, soft: int | None) -> None:
        """Change a limit of the running launcher (`NOFILE`, `NPROC`); None: back to the most that is allowed."""
        # By its own user, which may do so without privileges; and by a program, for prlimit(2) asks for the real user id.
        code = (
            f"import resource as r, sys\npid, kind, soft = int(sys.argv[1]), r.RLIMIT_{resource}, eval(sys.argv[2])\n"
        )
        code += "hard = r.prlimit(pid, kind)[1]\nr.prlimit(pid, kind, (hard if soft is None else soft, hard))"
        self.run_as_its_user(code, str(self.process.pid), repr(soft))

    def run_as_its_user(self, code: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """What Python code prints that runs as the launcher's user, in no sandbox."""
        command = [str(self.python.executable), "-I", "-S", "-c", code, *arguments]
        user = _user(self.conditions)
        answer = subprocess.run(command, check=True, cwd="/", env=env, stdout=subprocess.PIPE, **user)
        return str(answer.stdout.decode())

    def stop(self) -> None:
        """SIGTERM, and its end."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE_SEC)


@contextmanager
def running_launcher(
    under: Conditions,
    *,
    keep: Path | None = None,
    socket_path: Path | None = None,
    changes: Mapping[str, str] | None = None,
) -> Iterator[Launcher]:
    """A launcher under these conditions; `keep` is the folder of one that ran before, `socket_path` where that one listened.

    `changes`: constants of its zygotes (nursery.py), `NAME = value` by what stands there otherwise.
    """
    base = keep or Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
    try:
        if keep is None:
            _lay_out(base, under, changes or {})
        path = socket_path or base / f"launcher-{next(_NUMBERS)}.sock"
        path.unlink(missing_ok=True)
        with _given_groups(under) as first:
            launcher = Launcher(base, under, _python_for(under), _start(base, under, path, first), path)
            try:
                yield launcher
            finally:
                for client in launcher.clients:
                    client.close()
                if launcher.process.poll() is None:
                    launcher.process.send_signal(signal.SIGCONT)
                launcher.stop()
    finally:
        if keep is None:
            shutil.rmtree(base)
            # Of one that was killed: the next with the same run folder would do this.
            for parent in own_groups():
                _is_removed(parent / "sless" / cgroup_search.escaped(str(base / "run")))


def _lay_out(base: Path, under: Conditions, changes: Mapping[str, str]) -> None:
    shutil.copytree(LAUNCHER, base / "launcher", ignore=shutil.ignore_patterns("__pycache__"))
    for present, wanted in changes.items():
        path = base / "launcher" / "nursery.py"
        assert present in path.read_text(), present
        path.write_text(path.read_text().replace(present, wanted))
    (base / "data").mkdir(mode=0o700)
    (base / "data" / "secrets.json").write_text('{"password": "platform-secret"}')
    (base / "data" / "secrets.json").chmod(0o600)
    if under.uid != os.getuid():
        for path in [base, *base.rglob("*")]:
            os.chown(path, under.uid, under.uid)


def _start(base: Path, under: Conditions, path: Path, first: str) -> subprocess.Popen[bytes]:
    python = str(_python_for(under).executable)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        os.chown(path, under.uid, under.uid)
        main = str(base / "launcher" / "__main__.py")
        program = ["-I", "-S", "-c", _OLD_KERNEL, main] if under.old else ["-I", "-S", main]
        if under.meminfo:
            program = ["-I", "-S", "-c", _MEMINFO, main, under.meminfo]
        options = ["--listen-fd", str(listener.fileno()), "--run-dir", str(base / "run"), "--uid-base", str(UID_BASE)]
        options += ["--isolation", under.demanded] if under.demanded else []
        before = first + under.forbid
        beginning = [python, "-I", "-S", "-c", before + _EXEC] if before else [python]
        return subprocess.Popen(
            [*beginning, *program, *options], env={}, pass_fds=[listener.fileno()], cwd="/", **_user(under)
        )


def _user(under: Conditions) -> Mapping[str, Any]:
    if under.uid == os.getuid():
        return {}
    return {"user": under.uid, "group": under.uid, "extra_groups": []}


def _python_for(under: Conditions) -> Interpreter:
    """The interpreter of these tests where the launcher's and the instances' users can reach it, else Debian's."""
    base = getattr(sys, "_base_executable", sys.executable)
    reachable = under.uid == os.getuid() and not (under.uid == 0 and under.level in ("landlock", "none"))
    found = inspect(Path(base if reachable else "/usr/bin/python3"))
    assert found is not None, "this test needs a Python that every user can run, at /usr/bin/python3"
    return found


def wait_until(condition: Callable[[], bool], what: str, patience_sec: float = PATIENCE_SEC) -> None:
    """Return as soon as `condition` holds; AssertionError with `what` when it does not in time."""
    until = time.monotonic() + patience_sec
    while not condition():
        assert time.monotonic() < until, f"not within {patience_sec} s: {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, as this test sees them."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(parent, []).append(int(name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found
