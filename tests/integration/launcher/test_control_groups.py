"""The control groups of instances, with a real kernel."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sless_runtime_manager.launcher import cgroup_search

from tests.support.launcher import Conditions, Launcher, own_groups, running_launcher, wait_until

UNIFIED = next(
    (
        path
        for path in map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"))
        if (path / "cgroup.controllers").exists()
    ),
    None,
)
SLEEP = ["/bin/sleep", "600"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may make no control groups")


def groups_of(launcher: Launcher) -> list[Path]:
    """The folders of its instances' groups, and those that hold them."""
    name = cgroup_search.escaped(str(launcher.run))
    return [path for parent in own_groups() for path in parent.glob(f"sless/{name}/**/") if path.is_dir()]


@pytest.mark.skipif(not own_groups(), reason="no control groups of version 1 may be written here")
def test_nothing_of_them_is_left_whatever_ends_the_launcher() -> None:
    root = Conditions("root", 0)
    with running_launcher(root) as first:
        client = first.connect()
        client.call("start", spec=first.spec("i-a", "import time\ntime.sleep(600)"))
        assert len([path for path in groups_of(first) if path.name == "i-a"]) == 2
        first.process.kill()
        first.process.wait()
        assert groups_of(first), "nobody could take them away"
        with running_launcher(root, keep=first.base) as second:
            wait_until(lambda: second.connect().call("list") == {"instances": []}, "the next one to run")
            assert [path for path in groups_of(second) if path.name == "i-a"] == []
            second.connect().call("start", spec=second.spec("i-b", "pass"))
            wait_until(lambda: not [path for path in groups_of(second) if path.name == "i-b"], "its group to go")
        assert groups_of(first) == []


@pytest.fixture
def unified() -> Iterator[tuple[Path, str]]:
    """A group of version 2 with a controller to pass on."""
    if UNIFIED is None or not os.access(UNIFIED, os.W_OK):
        pytest.skip("no control groups of version 2 may be written here")
    controllers = (UNIFIED / "cgroup.controllers").read_text().split()
    if not controllers:
        pytest.skip("no controller of version 2 is here")
    before = (UNIFIED / "cgroup.subtree_control").read_text().split()
    (UNIFIED / "cgroup.subtree_control").write_text(f"+{controllers[0]}")
    folder = UNIFIED / f"sless-test-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder, controllers[0]
    finally:
        for path in sorted(folder.rglob("*/"), reverse=True):
            path.rmdir()
        folder.rmdir()
        if controllers[0] not in before:
            (UNIFIED / "cgroup.subtree_control").write_text(f"-{controllers[0]}")


def test_the_platforms_own_processes_make_room_for_controllers(unified: tuple[Path, str]) -> None:
    folder, controller = unified
    with subprocess.Popen(SLEEP) as own:
        try:
            (folder / "cgroup.procs").write_text(str(own.pid))
            cgroup_search.prepare_v2(str(folder), os.getpid(), (controller,))
            assert (folder / "cgroup.subtree_control").read_text().split() == [controller]
            assert (folder / "sless-platform/cgroup.procs").read_text().split() == [str(own.pid)]
        finally:
            own.send_signal(signal.SIGKILL)


def test_others_processes_are_not_moved(unified: tuple[Path, str]) -> None:
    folder, controller = unified
    with subprocess.Popen(SLEEP) as own, subprocess.Popen(SLEEP) as other:
        try:
            (folder / "cgroup.procs").write_text(str(other.pid))
            with pytest.raises(OSError, match="others' processes"):
                cgroup_search.prepare_v2(str(folder), own.pid, (controller,))
            assert (folder / "cgroup.procs").read_text().split() == [str(other.pid)]
            os.setxattr(folder, "user.delegate", b"1")  # As systemd marks what it gave away.
            cgroup_search.prepare_v2(str(folder), own.pid, (controller,))
            assert (folder / "sless-platform/cgroup.procs").read_text().split() == [str(other.pid)]
        finally:
            own.send_signal(signal.SIGKILL)
            other.send_signal(signal.SIGKILL)


@pytest.mark.skipif(not own_groups(), reason="no control groups of version 1 may be written here")
def test_groups_of_run_folders_that_are_no_more_are_taken_away() -> None:
    forsaken = [parent / "sless" / "nowhere-at-all" / "i-a" for parent in own_groups()]
    for folder in forsaken:
        folder.mkdir(parents=True)
    with running_launcher(Conditions("root", 0)) as running:
        running.connect().call("list")
        assert not any(folder.parent.exists() for folder in forsaken)
