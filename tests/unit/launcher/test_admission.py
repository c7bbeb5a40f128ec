"""Which instances are started when memory is scarce."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sless_runtime_manager.launcher.admission import Machine, Promise, shortage

MIB = 1 << 20


def promise(most_mb: int, used_mb: int) -> Promise:
    return Promise(most_mb * MIB, lambda: used_mb * MIB)


@pytest.mark.parametrize(
    ("wanted", "available", "promises", "missing"),
    [
        (160, 1000, [], 0),
        (160, 416, [], 0),
        (160, 415, [], 1),
        (160, 1000, [promise(160, 20)] * 4, 0),
        (160, 1000, [promise(160, 0)] * 4, 56),
        (160, 1000, [promise(160, 160)] * 40, 0),
        (160, 1000, [promise(160, 500)] * 4, 0),
    ],
)
def test_what_was_promised_and_is_not_used_yet_is_not_given_away(
    wanted: int, available: int, promises: list[Promise], missing: int
) -> None:
    assert shortage(wanted * MIB, available * MIB, 256 * MIB, promises) == missing * MIB


def test_what_is_used_is_not_asked_for_while_there_is_plenty() -> None:
    def asked() -> int:
        raise AssertionError("every start would pay for this")

    assert shortage(MIB, 10_000 * MIB, 256 * MIB, [Promise(160 * MIB, asked)] * 10) == 0


def test_whatever_instances_take_the_reserve_is_left() -> None:
    """A machine on which instances come, grow as they like within what they may, and go."""
    chance = random.Random(7)
    total, reserve = 4096, 256
    most: list[int] = []
    used: list[int] = []
    refused = started = 0
    for _ in range(5_000):
        wanted = chance.choice([96, 160, 288, 544, 1056])
        promises = [promise(limit, taken) for limit, taken in zip(most, used, strict=True)]
        if shortage(wanted * MIB, (total - sum(used)) * MIB, reserve * MIB, promises) == 0:
            most.append(wanted)
            used.append(chance.randint(5, 40))
            started += 1
        else:
            refused += 1
        used = [min(limit, taken + chance.randint(0, 60)) for limit, taken in zip(most, used, strict=True)]
        if most and chance.random() < 0.6:
            gone = chance.randrange(len(most))
            del most[gone], used[gone]
        assert total - sum(used) >= reserve
        assert total - sum(most) >= reserve
    assert started > 1_000
    assert refused > 100


MEMINFO = (
    "MemTotal:       8000000 kB\nMemFree:         100000 kB\nMemAvailable:   4000000 kB\nHugePages_Total:       0\n"
)


def group(folder: Path, **files: str) -> str:
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return str(folder)


def test_the_machine_keeps_a_twentieth_and_256_mib_at_least(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    machine = Machine([], None, str(tmp_path / "meminfo"))
    assert (machine.reserve, machine.available()) == (8_000_000 * 1024 // 20, 4_000_000 * 1024)
    assert Machine([], 7, str(tmp_path / "meminfo")).reserve == 7 * MIB
    (tmp_path / "meminfo").write_text(MEMINFO.replace("8000000", "900000"))
    assert Machine([], None, str(tmp_path / "meminfo")).reserve == 256 * MIB


def test_the_limit_of_the_platforms_own_group_counts(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    stat = f"anon 1\ninactive_file {100 * MIB}\n"
    limited = group(tmp_path / "v2", memory_max=f"{1000 * MIB}\n", memory_current=f"{700 * MIB}\n", memory_stat=stat)
    unlimited = group(tmp_path / "open", memory_max="max\n", memory_current="5\n", memory_stat=stat)
    machine = Machine([unlimited, limited, str(tmp_path / "nothing")], None, str(tmp_path / "meminfo"))
    assert machine.available() == 400 * MIB
    assert machine.reserve == 256 * MIB


def test_version_1_counts_the_groups_below(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    stat = f"inactive_file 0\ntotal_inactive_file {50 * MIB}\n"
    files = {"memory_limit_in_bytes": f"{500 * MIB}", "memory_usage_in_bytes": f"{300 * MIB}", "memory_stat": stat}
    assert Machine([group(tmp_path / "v1", **files)], 0, str(tmp_path / "meminfo")).available() == 250 * MIB
