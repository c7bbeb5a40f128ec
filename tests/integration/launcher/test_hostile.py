"""A hostile handler gets no further than the isolation that the launcher reports promises."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sless_runtime_manager.launcher import landlock

from tests.integration.launcher import attempts
from tests.support.launcher import UID_BASE, Launcher, LauncherClient, own_groups

SLEEP = "import time\ntime.sleep(600)"

NOBODY_EVER = {
    "read the password file",
    "read the launcher's environment",
    "mount",
    "unmount",
    "make the root writable",
    "change the root",
    "make a device",
    "become root",
    "become another tenant",
    "set a kernel parameter",
    "set the host's name",
    "raise a limit",
}
"""Refused without any sandbox: by the kernel, and by the launcher closing its memory."""

SIGNALS = {"signal the launcher", "signal a neighbour", "signal a sibling"}

FILTERED = {
    "add a key",
    "ask the kernel's auditing",
    "change the root",
    "handle its own page faults",
    "listen to the wire",
    "load a program into the kernel",
    "make a process by flags that no filter sees",
    "make a process in a user namespace",
    "make a raw socket",
    "make a user namespace",
    "make memory that outlives it",
    "trace any process",
    "type into its terminal",
    "use io_uring",
    "use the kernel's cryptography",
    "watch the processor",
}
"""Refused by the filter of system calls, whatever the level."""

UNHIDDEN = {"see other processes", *(() if landlock.version() >= 6 else SIGNALS)}
"""What Landlock leaves: the numbers of others' processes, to an older kernel signals to them."""

OWN_USER = NOBODY_EVER | {
    "read the data folder",
    "list the data folder",
    "list the run folder",
    "read a neighbour's files",
    "connect to a neighbour",
    "read a sibling's files",
    "connect to a sibling",
    "connect to the launcher",
    "read a neighbour's environment",
    "signal the launcher",
    "signal a neighbour",
}
"""Refused also without a sandbox where each owner has a user id of its own."""


TARGETS = {
    "read the data folder",
    "list the data folder",
    "list the run folder",
    "read a neighbour's files",
    "connect to a neighbour",
    "read a sibling's files",
    "connect to a sibling",
    "connect to the launcher",
    "connect to a socket in /tmp of the host",
    "signal the launcher",
    "signal a neighbour",
    "signal a sibling",
}
"""What the platform's own user can reach: the attempts aim at things that exist."""


def promised(level: str, uid: int) -> set[str]:
    """The attempts that fail at this level, for instances of a launcher that runs as `uid`."""
    if level == "namespaces":
        return set(attempts.ATTEMPTS)
    if level == "landlock":
        return set(attempts.ATTEMPTS) - UNHIDDEN
    return FILTERED | (OWN_USER if uid == 0 else NOBODY_EVER)


@pytest.fixture
def given(launcher: Launcher, client: LauncherClient) -> Iterator[dict[str, object]]:
    """A neighbour (another owner's instance), a sibling (the same owner's), and a socket such as PostgreSQL's in /tmp."""
    running = {}
    for name, index in (("sibling", 0), ("neighbour", 1)):
        spec = launcher.spec(f"i-{name}", SLEEP, uid_index=index, env={"SECRET": f"{name}-secret"})
        running[name] = client.call("start", spec=spec)
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:
        os.chmod(folder, 0o755)
        listener.bind(f"{folder}/.s.PGSQL.5432")
        os.chmod(f"{folder}/.s.PGSQL.5432", 0o777)
        listener.listen()
        yield {
            "data": str(launcher.data),
            "run": str(launcher.run),
            "launcher": str(launcher.socket),
            "launcher_pid": launcher.process.pid,
            "host_socket": f"{folder}/.s.PGSQL.5432",
            "neighbour_uid": UID_BASE + 1,
            **{name: str(launcher.run / f"i-{name}") for name in running},
            **{f"{name}_pid": answer["pid"] for name, answer in running.items()},
        }
    for name in running:
        client.call("stop", instance_id=f"i-{name}", grace_ms=0)


def test_what_the_level_promises_to_refuse_is_refused(
    launcher: Launcher, client: LauncherClient, given: dict[str, object]
) -> None:
    level = client.call("isolation")["level"]
    expected = promised(level, launcher.conditions.uid)
    env = {"GIVEN": json.dumps({**given, "attempts": sorted(expected)})}
    client.call("start", spec=launcher.spec(f"i-hostile-{level}", attempts_source(), env=env))
    found = json.loads(client.ended(f"i-hostile-{level}")["tail"])
    assert set(found) == expected
    assert {name: result for name, result in found.items() if result.startswith("REACHED")} == {}


def test_the_platforms_own_user_reaches_what_instances_do_not(launcher: Launcher, given: dict[str, object]) -> None:
    env = {"GIVEN": json.dumps({**given, "attempts": sorted(TARGETS)})}
    found = json.loads(launcher.run_as_its_user(attempts_source(), env=env))
    assert {name: result for name, result in found.items() if not result.startswith("REACHED")} == {}


def attempts_source() -> str:
    return Path(attempts.__file__).read_text()


def test_the_level_is_what_the_conditions_allow(launcher: Launcher, client: LauncherClient) -> None:
    isolation = client.call("isolation")
    expected = launcher.conditions.level
    assert expected in (None, isolation["level"])
    assert isolation["memory"] == isolation_of_memory(launcher)
    assert isolation["seccomp"] is True
    assert isolation["network"] == "host"
    nothing_lacks = isolation["memory"] != "approximate" and not launcher.conditions.forbid
    assert (isolation["reason"] == "") == nothing_lacks
    assert bool(isolation["landlock"]) == (isolation["level"] == "landlock")


def isolation_of_memory(launcher: Launcher) -> str:
    """What the machine allows, where these tests can tell."""
    may_write = launcher.conditions.given or (launcher.conditions.uid == 0 and own_groups())
    return "control group v1" if may_write else "approximate"
