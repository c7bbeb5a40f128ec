"""What an instance finds inside: enough to run any program of the machine, its code read-only, bounded resources."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import ORDINARY_UID, UID_BASE, Launcher, LauncherClient

MIB = 1 << 20


@pytest.fixture
def sandboxed(client: LauncherClient) -> bool:
    """Whether the instances of these conditions have namespaces."""
    return bool(client.call("isolation")["level"] == "namespaces")


def told_by(launcher: Launcher, client: LauncherClient, name: str, code: str, **fields: Any) -> Any:
    """What an instance prints as JSON, at once."""
    client.call("start", spec=launcher.spec(f"i-{name}", code, **fields))
    tail = client.ended(f"i-{name}")["tail"]
    return json.loads(tail)


def test_it_is_a_process_of_its_own_in_a_world_of_its_own(
    launcher: Launcher, client: LauncherClient, sandboxed: bool
) -> None:
    if not sandboxed:
        return  # There is no such world then, and the launcher says so.
    code = """
import json, os, pwd, socket
print(json.dumps({
    "pid": os.getpid(), "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "host": socket.gethostname(),
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()),
    "name": pwd.getpwuid(os.getuid()).pw_name, "root": sorted(os.listdir("/")), "reaper": open("/proc/1/cmdline").read(20),
    "dev": sorted(os.listdir("/dev")), "tmp": os.listdir("/tmp") + os.listdir("/dev/shm"), "etc": os.listdir("/etc"),
    "address": socket.gethostbyname(socket.gethostname()),
}))
"""
    found = told_by(launcher, client, "world", code, uid_index=4)
    user = UID_BASE + 4 if launcher.conditions.uid == 0 else launcher.conditions.uid
    assert (found["pid"], found["processes"], found["reaper"]) == (2, [1, 2], "sless-init" + "\0" * 10)
    assert (found["uid"], found["gid"], found["name"]) == (user, user, "function")
    assert found["groups"] == [] or launcher.conditions.uid not in (0, ORDINARY_UID)
    assert found["host"] == "function"
    assert found["address"].startswith("127.")
    assert found["tmp"] == []
    assert {"data", "home", "srv", "sys", "boot", "mnt"} & set(found["root"]) <= {"srv"}
    assert set(found["dev"]) == {"fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"}
    assert {"passwd", "group", "hosts", "nsswitch.conf", "resolv.conf"} & set(os.listdir("/etc")) <= set(found["etc"])
    assert not {"shadow", "sudoers", "ssh", "fstab"} & set(found["etc"])


def test_programs_of_the_machine_work_inside(launcher: Launcher, client: LauncherClient) -> None:
    code = """
import json, os, socket, ssl, subprocess, tempfile, time
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x" * 1000)
print(json.dumps({
    "shell": subprocess.run("echo $GREETING | tr a-z A-Z", shell=True, capture_output=True, text=True).stdout,
    "local": socket.getaddrinfo("localhost", 80, socket.AF_INET)[0][4][0],
    "certificates": ssl.create_default_context().cert_store_stats()["x509_ca"],
    "zone": time.tzname[0], "random": len(open("/dev/urandom", "rb").read(4)), "null": open("/dev/null", "w").write("x"),
}))
"""
    found = told_by(
        launcher, client, "programs", code, env={"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp", "GREETING": "hello"}
    )
    assert (found["shell"], found["local"], found["random"], found["null"]) == ("HELLO\n", "127.0.0.1", 4, 1)
    assert bool(found["certificates"]) == bool(list(Path("/etc/ssl/certs").glob("*.crt")))


def test_layers_are_found_at_their_places_whoever_may_enter_their_folder(
    launcher: Launcher, client: LauncherClient, sandboxed: bool
) -> None:
    for name in ("runtime", "code"):
        folder = launcher.data / "layers" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_text(name)
        (folder / "program.py").write_text(PROGRAM)
    (launcher.data / "layers" / "runtime" / "open").mkdir(exist_ok=True)
    (launcher.data / "layers" / "runtime" / "open").chmod(0o777)
    layers = [
        {"source": str(launcher.data / "layers" / "runtime"), "target": "/opt/sless/runtime"},
        {"source": str(launcher.data / "layers" / "code"), "target": "/srv/function"},
    ]
    program = [str(launcher.python.executable), "-I", "-S", "/opt/sless/runtime/program.py"]
    env = {"RUNTIME": "/opt/sless/runtime", "CODE": "/srv/function", "OTHER": "/srv/functional"}
    found = told_by(launcher, client, "layers", "", argv=program, layers=layers, cwd="/srv/function", env=env)
    assert (found["files"], found["imported"], found["other"]) == (
        ["runtime", "code", "code"],
        "code",
        "/srv/functional",
    )
    read_only = "Read-only file system"
    if sandboxed:
        assert (found["places"], found["cwd"]) == (["/opt/sless/runtime", "/srv/function"], "/srv/function")
        assert found["writes"] == [read_only, read_only]
    if not sandboxed and launcher.conditions.uid == 0:
        assert found["writes"][1] == "Permission denied"


PROGRAM = """
import json, os, sys
def write(path):
    try:
        with open(path, "w"):
            return "written"
    except OSError as error:
        return error.strerror
if __name__ == "__main__":
    places = [os.environ["RUNTIME"], os.environ["CODE"]]
    sys.path.insert(0, places[1])
    import program
    with open(os.path.dirname(program.__file__) + "/file") as file:
        imported = file.read()
    print(json.dumps({
        "cwd": os.getcwd(), "places": places, "files": [open(path).read() for path in [*(p + "/file" for p in places), "file"]],
        "imported": imported, "other": os.environ["OTHER"], "writes": [write(places[0] + "/open/x"), write("file-x")],
    }))
"""


def test_an_interpreter_from_anywhere_is_shown_at_its_own_place(
    launcher: Launcher, client: LauncherClient, sandboxed: bool
) -> None:
    if not sandboxed:
        return  # It is where it is.
    prefix = launcher.base / "somewhere" / "python"
    prefix.mkdir(parents=True, exist_ok=True)
    (prefix / "program").write_text("#!/bin/sh\necho '\"ran\"'\n")
    (prefix / "program").chmod(0o755)
    found = told_by(launcher, client, "prefix", "", argv=[str(prefix / "program")], prefixes=[str(prefix)])
    assert found == "ran"


def test_what_would_show_the_run_folder_is_not_shown(
    launcher: Launcher, client: LauncherClient, sandboxed: bool
) -> None:
    if not sandboxed:
        return  # Nothing is shown or hidden then.
    error = client.error("start", spec=launcher.spec("i-all", "", prefixes=[str(launcher.base)]))
    assert error["code"] == "INVALID"
    assert str(launcher.base) in error["message"]


def test_resources_are_bounded(launcher: Launcher, client: LauncherClient, sandboxed: bool) -> None:
    code = """
import errno, json, os
def bounded(action):
    try:
        return action()
    except MemoryError:
        return "MemoryError"
    except OSError as error:
        return errno.errorcode[error.errno]
def fill(path, size):
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(size >> 20):
                file.write(bytes(1 << 20))
    finally:
        os.unlink(path)  # It counts as memory.
def open_all():
    return [open("/dev/null") for _ in range(2000)]
print(json.dumps({
    "memory": bounded(lambda: len(bytearray(400 << 20))),
    "descriptors": bounded(open_all),
    "tmp": bounded(lambda: fill("/tmp/big", 300 << 20)) if SANDBOXED else "ENOSPC",
    "shm": bounded(lambda: fill("/dev/shm/big", 300 << 20)) if SANDBOXED else "ENOSPC",
    "inodes": bounded(lambda: [open(f"/tmp/{n}", "w").close() for n in range(20_000)] and 1) if SANDBOXED else "ENOSPC",
    "core": open("/proc/self/limits").read().split("core file size")[1].split()[0],
}))
"""
    code = f"SANDBOXED = {sandboxed}\n{code}"
    found = told_by(launcher, client, "bounds", code, memory_mb=64, allowance_mb=64)
    assert found == {
        "memory": "MemoryError",
        "descriptors": "EMFILE",
        "tmp": "ENOSPC",
        "shm": "ENOSPC",
        "inodes": "ENOSPC",
        "core": "0",
    }


def test_processes_are_bounded(launcher: Launcher, client: LauncherClient) -> None:
    if client.call("isolation")["processes"] == "not limited":
        return  # The launcher says so.
    code = """
import errno, json, os, signal
children = 0
while children < 2000:
    try:
        pid = os.fork()
    except OSError as error:
        print(json.dumps([errno.errorcode[error.errno], children > 100]))
        break
    if pid == 0:
        signal.pause()
    children += 1
"""
    assert told_by(launcher, client, "many", code, memory_mb=1024) == ["EAGAIN", True]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("heap", "b = b'x' * (400 << 20)"),
        ("shared", "m = mmap.mmap(-1, 400 << 20)\nfor at in range(0, len(m), 4096):\n    m[at] = 1"),
        ("nameless", "for _ in range(400):\n    os.write(os.memfd_create('x'), bytes(1 << 20))"),
    ],
)
def test_an_instance_that_takes_more_memory_than_it_may_is_ended_and_that_is_told(
    launcher: Launcher, client: LauncherClient, kind: str, code: str
) -> None:
    code = f"import mmap, os, signal\n{code}\nsignal.pause()"
    client.call("start", spec=launcher.spec(f"i-greedy-{kind}", code, allowance_mb=500))
    end = client.ended(f"i-greedy-{kind}")
    assert (end["reason"], end["signal"], end["exit_code"]) == ("memory", signal.SIGKILL, None)


def test_the_memory_of_all_processes_of_an_instance_counts_together(launcher: Launcher, client: LauncherClient) -> None:
    code = """
import os, signal
for _ in range(5):
    if os.fork() == 0:
        held = b"x" * (90 << 20)
        signal.pause()
for _ in range(4):
    os.wait()
print("outlived by one at most", flush=True)
"""
    client.call("start", spec=launcher.spec("i-family", code))
    # The kernel ends the largest processes of a control group, the launcher a whole instance.
    end = client.ended("i-family")
    assert end["reason"] == "memory" or end["tail"] == "outlived by one at most\n"


def test_an_instance_that_fills_its_tmp_and_memory_is_ended(
    launcher: Launcher, client: LauncherClient, sandboxed: bool
) -> None:
    if not sandboxed:
        return  # Its /tmp is no memory then.
    code = """
import signal
held = b"x" * (100 << 20)
with open("/tmp/file", "wb", buffering=0) as file:
    for _ in range(100):
        file.write(bytes(1 << 20))
signal.pause()
"""
    client.call("start", spec=launcher.spec("i-full", code))
    assert client.ended("i-full")["reason"] == "memory"


def test_one_that_stays_within_its_memory_lives(launcher: Launcher, client: LauncherClient) -> None:
    code = """
import os, signal, time
held = b"x" * (60 << 20)
for _ in range(3):
    if os.fork() == 0:  # What they share with their parent counts once.
        signal.pause()
time.sleep(2.5)
os._exit(7)
"""
    client.call("start", spec=launcher.spec("i-modest", code))
    assert client.ended("i-modest")["exit_code"] == 7


def test_one_that_forks_without_end_harms_itself_alone(
    launcher: Launcher, client: LauncherClient, sandboxed: bool
) -> None:
    if not sandboxed:
        return  # Without a process namespace nothing is promised of this.
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    client.call("start", spec=launcher.spec("i-bomb", bomb))
    assert told_by(launcher, client, "beside", "import os\nprint(os.spawnl(os.P_WAIT, '/bin/true', 'true'))") == 0
    client.call("stop", instance_id="i-bomb", grace_ms=0)
    assert client.ended("i-bomb")["reason"] == "stopped"
