"""A launcher on a machine whose memory is what the test says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.launcher import Conditions, Launcher, running_launcher

MIB = 1 << 20
SLEEP = "import time\ntime.sleep(600)"


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    tell(tmp_path, available_mb=1000)
    under = Conditions("scarce", os.getuid())
    with running_launcher(replace(under, meminfo=str(tmp_path / "meminfo"))) as running:
        yield running


def tell(folder: Path, *, available_mb: int) -> None:
    """What the machine says of its memory from now on; the reserve is 256 MiB."""
    new = folder / "new"
    new.write_text(f"MemTotal: {2048 * 1024} kB\nMemAvailable: {available_mb * 1024} kB\n")
    new.replace(folder / "meminfo")


def test_no_more_instances_are_started_than_all_can_have_what_they_may(launcher: Launcher, tmp_path: Path) -> None:
    client = launcher.connect()
    # 1000 MiB less the reserve hold four of 160, which have taken next to nothing yet.
    for number in range(4):
        client.call("start", spec=launcher.spec(f"i-{number}", SLEEP, memory_mb=128))
    refused = client.error("start", spec=launcher.spec("i-4", SLEEP, memory_mb=128))
    assert (refused["code"], refused["step"]) == ("NO_MEMORY", "find memory")
    assert refused["message"].startswith("the machine has no memory for one more instance now: it may take 160 MiB")
    client.call("start", spec=launcher.spec("i-small", SLEEP, memory_mb=64))
    assert len(client.call("list")["instances"]) == 5
    client.call("stop", instance_id="i-0", grace_ms=0)
    client.call("start", spec=launcher.spec("i-4", SLEEP, memory_mb=128))


def test_when_the_machine_runs_short_nothing_that_runs_is_harmed(launcher: Launcher, tmp_path: Path) -> None:
    client = launcher.connect()
    client.call("start", spec=launcher.spec("i-first", SLEEP))
    tell(tmp_path, available_mb=100)
    assert client.error("start", spec=launcher.spec("i-second", SLEEP))["code"] == "NO_MEMORY"
    assert [one["instance_id"] for one in client.call("list")["instances"]] == ["i-first"]
    tell(tmp_path, available_mb=2000)
    client.call("start", spec=launcher.spec("i-second", SLEEP))
