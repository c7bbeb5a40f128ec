"""A hostile handler: what it tries fails, by the isolation that `sless status` reports."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.embedded import Platform, User

PROBE = '''
import ctypes
import glob
import os
import signal
import socket


def attempt(action):
    """What an action gave, or the error it met."""
    try:
        return {"ok": action()}
    except BaseException as error:
        return {"error": type(error).__name__ + ": " + str(error)}


def read(path):
    with open(path, "rb") as file:
        return file.read(200).decode("latin-1")


def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(path)
        return "connected"


def ptrace(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    return "attached"


def environments():
    found = {}
    for path in glob.glob("/proc/[0-9]*/environ"):
        if path.split("/")[2] == str(os.getpid()):
            continue
        try:
            found[path] = read(path)
        except OSError:
            continue
    return found


def handle(event):
    return {
        "read": {path: attempt(lambda: read(path)) for path in event.get("read", [])},
        "list": {path: attempt(lambda: sorted(os.listdir(path))) for path in event.get("list", [])},
        "connect": {path: attempt(lambda: connect(path)) for path in event.get("connect", [])},
        "write": {path: attempt(lambda: open(path, "w").write("x")) for path in event.get("write", [])},
        "signal": {str(pid): attempt(lambda: os.kill(pid, 0)) for pid in event.get("signal", [])},
        "ptrace": {str(pid): attempt(lambda: ptrace(pid)) for pid in event.get("ptrace", [])},
        "environments": environments(),
        "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
        "environment": sorted(os.environ),
        "user": os.getuid(),
        "mounts": attempt(lambda: os.system("mount -t tmpfs none /tmp 2>/dev/null")),
        "tmp": sorted(os.listdir("/tmp")),
    }
'''


def refused(answers: dict[str, dict[str, str]]) -> bool:
    """Whether every attempt failed."""
    return all("error" in answer for answer in answers.values())


@pytest.fixture(scope="module")
def hostile(platform: Platform) -> User:
    """Somebody with a hostile service."""
    user = platform.user()
    user.deploy("hostile", PROBE)
    return user


def test_the_strongest_isolation_that_the_kernel_allows_is_in_force(platform: Platform) -> None:
    isolation = platform.status()["isolation"]
    print("isolation:", isolation)

    assert isolation["level"] == "namespaces" or not _user_namespaces_allowed()
    assert isolation["memory"].startswith("control group") or isolation["memory"] == "approximate"
    assert isolation["network"] == "host"


def _user_namespaces_allowed() -> bool:
    made = subprocess.run(["unshare", "--user", "--mount", "--map-root-user", "true"], check=False, capture_output=True)
    return made.returncode == 0


def test_a_handler_cannot_read_or_write_the_platforms_files(platform: Platform, hostile: User) -> None:
    where = platform.layout
    victim = platform.user()
    victim.deploy("victim", "SECRET = 'of somebody else'\n\ndef handle(event):\n    return 'mine'\n")
    layers = [path for path in where.layers.rglob("handler.py") if b"somebody else" in path.read_bytes()]
    assert layers, "the victim's code lies somewhere"
    files = [where.secrets, where.issuer_key, where.platform_log, where.lock, *layers, Path("/etc/shadow")]

    answer = hostile.fn(
        "hostile",
        method="POST",
        json={
            "read": [str(path) for path in files],
            "list": [str(path) for path in (where.data, where.run, where.layers, where.instances, platform.home)],
            "write": [str(path) for path in (where.data / "x", where.run / "x", "/usr/x", "/etc/x", "handler.py")],
        },
    ).json()

    if platform.status()["isolation"]["level"] == "namespaces":
        assert refused(answer["read"]), answer["read"]
        assert refused(answer["list"]), answer["list"]
        assert refused(answer["write"]), answer["write"]
        assert answer["tmp"] == []


def test_a_handler_reaches_no_socket_of_the_platform(platform: Platform, hostile: User) -> None:
    where = platform.layout
    sockets = [path for path in where.run.rglob("*") if path.is_socket()]
    assert {path.name for path in sockets} >= {"registry.sock", "launcher.sock", "instance.sock"}
    assert any(path.name.startswith(".s.PGSQL") for path in sockets)

    answer = hostile.fn("hostile", method="POST", json={"connect": [str(path) for path in sockets]}).json()

    if platform.status()["isolation"]["level"] == "namespaces":
        assert refused(answer["connect"]), answer["connect"]


def test_a_handler_sees_no_process_but_its_own(platform: Platform, hostile: User) -> None:
    others = [entry["pid"] for entry in platform.status()["services"]]

    answer = hostile.fn("hostile", method="POST", json={"signal": [*others, 1], "ptrace": [*others, 1]}).json()

    if platform.status()["isolation"]["level"] == "namespaces":
        assert len(answer["processes"]) <= 3
        assert refused({pid: found for pid, found in answer["signal"].items() if int(pid) not in answer["processes"]})
        assert refused(answer["ptrace"]), answer["ptrace"]
        assert answer["environments"] == {}
        assert answer["mounts"]["ok"] != 0


def test_a_handlers_environment_is_its_own(hostile: User) -> None:
    answer = hostile.fn("hostile").json()

    own = {"PATH", "HOME", "TMPDIR", "LANG"}
    assert {name for name in answer["environment"] if not name.startswith("SLESS_")} <= own
    assert {name for name in answer["environment"] if name.startswith("SLESS_")} <= {
        "SLESS_CODE_DIR",
        "SLESS_ENTRYPOINT",
        "SLESS_FUNCTION",
        "SLESS_GRACE_MS",
        "SLESS_INSTANCE",
        "SLESS_MAX_CONCURRENCY",
        "SLESS_MEMORY_MB",
        "SLESS_NAMESPACE",
        "SLESS_VERSION",
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give each namespace a user of its own")
def test_each_namespace_runs_under_a_user_of_its_own(platform: Platform, hostile: User) -> None:
    def owner_of(user: User, name: str) -> int:
        status = Path(f"/proc/{platform.program_of(user.namespace, name)}/status").read_text()
        return int(status.partition("Uid:")[2].split()[0])

    other = platform.user()
    other.deploy("other", "def handle(event):\n    return 1\n")
    other.fn("other")
    hostile.fn("hostile")

    first, second = owner_of(hostile, "hostile"), owner_of(other, "other")

    assert first != second
    assert min(first, second) >= 200_000
