"""Instances where no namespaces are to be had, kept in bounds by Landlock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sless_runtime_manager.launcher import cgroup_search, landlock

from tests.support.launcher import (
    LAUNCHER,
    ORDINARY_UID,
    Conditions,
    Launcher,
    LauncherClient,
    descendants,
    is_alive,
    running_launcher,
    wait_until,
)

pytestmark = pytest.mark.skipif(landlock.version() < 6, reason="this kernel's Landlock cannot keep signals in")

ORDINARY = ORDINARY_UID if os.getuid() == 0 else os.getuid()
USERS = [ORDINARY] if os.getuid() else [ORDINARY, 0]


@pytest.fixture(scope="module", params=USERS, ids=["ordinary", "root"][: len(USERS)])
def launcher(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    with running_launcher(Conditions("landlock", request.param, level="landlock", demanded="landlock")) as running:
        yield running


@pytest.fixture
def client(launcher: Launcher) -> LauncherClient:
    connected = launcher.connect()
    connected.call("follow")
    return connected


def scratch_of(launcher: Launcher) -> Path:
    """Where its instances' temporary folders are."""
    return Path(f"/tmp/sless-scratch-{launcher.conditions.uid}") / cgroup_search.escaped(str(launcher.run))


ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp"}


def test_an_instance_has_a_temporary_folder_of_its_own_that_goes_with_it(
    launcher: Launcher, client: LauncherClient
) -> None:
    code = """
import json, os, tempfile
home = os.environ["HOME"]
with tempfile.TemporaryDirectory() as folder:
    open(folder + "/file", "w").write("x")
    made = os.path.dirname(folder)
for _ in range(3000):  # Deeper than any path may be long.
    os.mkdir("a"); os.chdir("a")
os.mkdir("closed", 0)
print(json.dumps([home, made]))
"""
    client.call(
        "start", spec=launcher.spec("i-tmp", f"import os\nos.chdir(os.environ['HOME'])\n{code}", env=ENVIRONMENT)
    )
    home, made = json.loads(client.ended("i-tmp")["tail"])
    assert home == made == str(scratch_of(launcher) / "i-tmp")
    wait_until(lambda: not Path(home).exists(), "its temporary folder to be removed")


def test_what_it_writes_is_bounded(launcher: Launcher, client: LauncherClient) -> None:
    code = """
import os, signal
for number in range(3):
    with open(f"{os.environ['HOME']}/{number}", "wb", buffering=0) as file:
        for _ in range(30):
            file.write(b"x" * (1 << 20))
signal.pause()
"""
    client.call("start", spec=launcher.spec("i-disk", code, env=ENVIRONMENT, memory_mb=64))
    assert client.ended("i-disk")["reason"] == "disk"
    wait_until(lambda: list(scratch_of(launcher).iterdir()) == [], "its temporary folder to be removed")


def test_files_that_it_removed_and_keeps_open_count(launcher: Launcher, client: LauncherClient) -> None:
    code = """
import os, signal
held = []
for number in range(3):
    held.append(open(f"{os.environ['HOME']}/{number}", "wb", buffering=0))
    os.unlink(held[-1].name)
    for _ in range(30):
        held[-1].write(b"x" * (1 << 20))
signal.pause()
"""
    client.call("start", spec=launcher.spec("i-unlinked", code, env=ENVIRONMENT, memory_mb=64))
    assert client.ended("i-unlinked")["reason"] == "disk"


def test_it_sees_no_folder_of_the_machine(launcher: Launcher, client: LauncherClient) -> None:
    code = """
import json, os
def tried(action, path):
    try:
        action(path)
        return "REACHED"
    except OSError as error:
        return type(error).__name__
print(json.dumps([tried(os.listdir, path) for path in ("/", "/tmp", "/home", "/proc", "/etc", "/var/tmp", "/sys/fs/cgroup")]
    + [tried(open, path) for path in ("/proc/1/status", "/proc/1/cmdline", "/etc/shadow", "/etc/fstab")]
    + [tried(os.mkdir, path) for path in ("/tmp/sless-attempt", "/dev/shm/sless-attempt", "/var/tmp/sless-attempt")]))
"""
    client.call("start", spec=launcher.spec("i-blind", code))
    assert set(json.loads(client.ended("i-blind")["tail"])) == {"PermissionError"}


def test_one_that_kills_what_it_can_harms_itself_alone(launcher: Launcher, client: LauncherClient) -> None:
    neighbour = client.call("start", spec=launcher.spec("i-beside", "import time\ntime.sleep(600)"))
    code = """
import os, signal
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        break
for pid in (os.getppid(), 1, -1, int(os.environ["LAUNCHER"])):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
print("still here")
"""
    env = {"LAUNCHER": str(launcher.process.pid)}
    before = set(descendants(launcher.process.pid))
    client.call("start", spec=launcher.spec("i-killer", code, env=env))
    client.ended("i-killer")
    assert launcher.process.poll() is None
    assert is_alive(neighbour["pid"])
    wait_until(lambda: set(descendants(launcher.process.pid)) <= before, "all that it forked to be gone")
    client.call("stop", instance_id="i-beside", grace_ms=0)


def test_a_level_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    refuse = (
        "import ctypes, os, sys\nlibc = ctypes.CDLL(None)\nlibc.prctl(24, 21, 0, 0, 0)\nlibc.unshare(0x10000000)\n"
        "open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    main = str(LAUNCHER / "__main__.py")
    options = ["--listen-fd", "0", "--run-dir", str(tmp_path / "run"), "--isolation", "namespaces"]
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", refuse, "-I", "-S", main, *options],
        check=False, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 78
    assert "isolation by namespaces is demanded" in ended.stderr


def test_what_a_killed_launcher_left_is_removed_by_the_next() -> None:
    under = Conditions("landlock", ORDINARY, level="landlock", demanded="landlock")
    with running_launcher(under) as first:
        first.connect().call("start", spec=first.spec("i-left", "import time\ntime.sleep(600)"))
        assert [path.name for path in scratch_of(first).iterdir()] == ["i-left"]
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        with running_launcher(under, keep=first.base) as second:
            second.connect().call("list")
            assert list(scratch_of(second).iterdir()) == []
        assert not scratch_of(first).exists()
