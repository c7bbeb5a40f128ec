"""A launcher with the Python runtime as a layer, whose instances are forked from a zygote once there is one."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.launcher import (
    PATIENCE_SEC,
    Conditions,
    Launcher,
    LauncherClient,
    Message,
    conditions,
    descendants,
    running_launcher,
    wait_until,
)

RUNTIME = Path(__file__).parents[2] / "runtimes" / "python3.11"
RUNTIME_TARGET = "/opt/sless/runtime"
CODE_TARGET = "/srv/function"
NOTHING = "def handle(event):\n    return None\n"


def conditions_with_namespaces() -> list[Conditions]:
    """Those of this machine under which instances can be forked."""
    return [under for under in conditions() if under.level not in ("landlock", "none")]


def lay_out(launcher: Launcher, *, runtime: Path = RUNTIME) -> None:
    """The runtime's layer."""
    shutil.copytree(runtime, launcher.base / "runtime", ignore=shutil.ignore_patterns("__pycache__"))


def spec(
    launcher: Launcher, instance_id: str, code: str, *, files: Mapping[str, str] | None = None, **fields: Any
) -> Message:
    """A spec of the Python runtime with this code as handler.py."""
    folder = launcher.base / f"code-{instance_id}"
    folder.mkdir(exist_ok=True)
    for name, text in {"handler.py": code, **(files or {})}.items():
        (folder / name).write_text(text)
    env = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "SLESS_CODE_DIR": CODE_TARGET,
        "SLESS_ENTRYPOINT": "handler.handle",
    }
    env |= {"SLESS_INSTANCE": instance_id, **fields.pop("env", {})}
    return {
        "instance_id": instance_id,
        "uid_index": 0,
        "argv": [str(launcher.python.executable), "-I", "-S", f"{RUNTIME_TARGET}/main.py"],
        "env": env,
        "prefixes": launcher.python.exposed([]),
        "layers": [
            {"source": str(launcher.base / "runtime"), "target": RUNTIME_TARGET},
            {"source": str(folder), "target": CODE_TARGET},
        ],
        "zygote": RUNTIME_TARGET,
        "cwd": CODE_TARGET,
        "memory_mb": 128,
        "allowance_mb": 128,
        **fields,
    }


def named(launcher: Launcher, name: str) -> list[int]:
    """Processes below the launcher of this name."""
    found = []
    for pid in descendants(launcher.process.pid):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                found.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def reapers(launcher: Launcher) -> set[int]:
    """The first processes of instances and blanks."""
    return {pid for pid in named(launcher, "sless-init") if _parent(pid) == launcher.process.pid}


def zygote_of(launcher: Launcher) -> int:
    """The launcher's zygote."""
    wait_until(lambda: len(named(launcher, "sless-zygote")) == 1, "there is a zygote")
    return named(launcher, "sless-zygote")[0]


def wait_for_blanks(launcher: Launcher, client: LauncherClient, count: int = 2) -> set[int]:
    """The blanks that wait, once there are so many that a start needs no fork: by what the kernel says, each sleeps in its socket."""

    def blanks() -> set[int]:
        used = {one["pid"] for one in client.call("list")["instances"]}
        return {pid for pid in reapers(launcher) - used if _has_program(pid)}

    wait_until(lambda: len(blanks()) >= count, f"{count} blanks wait")
    return blanks()


def _has_program(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return False


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def hello(path: str) -> Message:
    """What the instance at that socket says to HELLO."""
    question = json.dumps({"protocol": [1], "role": "invoker"}).encode()
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(PATIENCE_SEC)
        caller.connect(path)
        caller.sendall((5 + len(question)).to_bytes(4, "big") + b"\x01" + bytes(4) + question)
        answer: Message = json.loads(caller.recv(65536)[9:])
    return answer


@contextmanager
def forking_launcher(
    under: Conditions, changes: Mapping[str, str] | None = None
) -> Iterator[tuple[Launcher, LauncherClient]]:
    """A launcher with two blanks that wait. `changes`: text of its nursery.py, and what stands there instead."""
    with running_launcher(under, changes=changes) as launcher:
        lay_out(launcher)
        client = launcher.connect()
        client.call("follow")
        client.call("start", spec=spec(launcher, "first", NOTHING))
        wait_for_blanks(launcher, client)
        client.call("stop", instance_id="first", grace_ms=0)
        client.ended("first")
        wait_for_blanks(launcher, client)
        yield launcher, client
        assert os.path.exists(launcher.base)
