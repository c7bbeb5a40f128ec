"""Control groups, over folders that stand in for the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sless_runtime_manager.launcher import cgroup_search, cgroups
from sless_runtime_manager.launcher.cgroups import Cgroups

MEMORY = 160 << 20


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new group has its files at once, and takes them with it, as the kernel's folders do."""
    make, take = os.mkdir, os.rmdir

    def mkdir(path: str, *arguments: object) -> None:
        make(path)
        for name in FILES:
            (Path(path) / name).write_text("")

    def rmdir(path: str) -> None:
        for name in FILES:
            (Path(path) / name).unlink(missing_ok=True)
        take(path)

    monkeypatch.setattr(os, "mkdir", mkdir)
    monkeypatch.setattr(os, "rmdir", rmdir)


FILES = (
    "cgroup.procs",
    "cgroup.subtree_control",
    "memory.max",
    "memory.swap.max",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "pids.max",
)


@pytest.mark.usefixtures("kernel")
def test_version_2_limits_memory_with_swap_and_processes_in_one_group(tmp_path: Path) -> None:
    groups = Cgroups(2, (str(tmp_path),), "run")
    groups.create("i-1", memory_bytes=MEMORY, processes=9)
    made = tmp_path / "sless/run/i-1"
    assert (made / "memory.max").read_text() == str(MEMORY)
    assert (made / "memory.swap.max").read_text() == "0"
    assert (made / "pids.max").read_text() == "9"
    assert (tmp_path / "sless/run/cgroup.subtree_control").read_text() == "+memory +pids"


@pytest.mark.usefixtures("kernel")
def test_version_1_limits_them_in_two_hierarchies(tmp_path: Path) -> None:
    memory, pids = tmp_path / "memory", tmp_path / "pids"
    groups = Cgroups(1, (str(memory), str(pids)), "run")
    groups.create("i-1", memory_bytes=MEMORY, processes=9)
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
        assert (memory / "sless/run/i-1" / name).read_text() == str(MEMORY)
    assert (pids / "sless/run/i-1/pids.max").read_text() == "9"
    groups.close()
    assert not (memory / "sless").exists()
    assert not (pids / "sless").exists()


@pytest.mark.usefixtures("kernel")
def test_two_hierarchies_that_are_mounted_as_one_have_one_group(tmp_path: Path) -> None:
    groups = Cgroups(1, (str(tmp_path), str(tmp_path)), "run")
    groups.remove(groups.create("i-1", memory_bytes=MEMORY, processes=9))
    assert not (tmp_path / "sless/run/i-1").exists()


@pytest.mark.usefixtures("kernel")
def test_what_a_launcher_before_left_is_taken_away(tmp_path: Path) -> None:
    Cgroups(2, (str(tmp_path),), "run").create("i-left", memory_bytes=MEMORY, processes=9)
    Cgroups(2, (str(tmp_path),), "other").create("i-other", memory_bytes=MEMORY, processes=9)
    Cgroups(2, (str(tmp_path),), "run")
    assert not (tmp_path / "sless/run/i-left").exists()
    assert (tmp_path / "sless/other/i-other").exists()


@pytest.mark.usefixtures("kernel")
def test_running_out_of_memory_is_told_apart(tmp_path: Path) -> None:
    for version, name in ((1, "memory.oom_control"), (2, "memory.events")):
        parent = tmp_path / str(version)
        group = Cgroups(version, (str(parent),), "run").create("i-1", memory_bytes=MEMORY, processes=9)
        events = parent / "sless/run/i-1" / name
        assert not group.ran_out()
        events.write_text("oom 3\noom_kill 0\n")
        assert not group.ran_out()
        events.write_text("oom 3\noom_kill 2\n")
        assert group.ran_out()


@pytest.mark.usefixtures("kernel")
def test_a_group_that_cannot_be_limited_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Cgroups(2, (str(tmp_path),), "run")

    def refuse(path: str, text: str) -> None:
        raise OSError(22, "Invalid argument", path)

    monkeypatch.setattr(cgroups, "write", refuse)
    with pytest.raises(OSError, match="Invalid"):
        groups.create("i-1", memory_bytes=MEMORY, processes=9)
    assert not (tmp_path / "sless/run/i-1").exists()


def test_a_controller_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu pids\n")
    with pytest.raises(OSError, match="the controller memory is not available"):
        cgroup_search.prepare_v2(str(tmp_path), os.getpid(), ("memory", "pids"))


def test_run_folders_have_names_of_their_own() -> None:
    paths = ["/tmp/a-b/run", "/tmp/a/b/run", "/tmp/a-b-run", "/tmp/a/b-run"]
    assert len({cgroup_search.escaped(path) for path in paths}) == len(paths)
    assert not any("/" in cgroup_search.escaped(path) for path in paths)
