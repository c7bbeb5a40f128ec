"""What processes use, as /proc tells it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

TICK_SEC = 1 / os.sysconf("SC_CLK_TCK")


def processor_sec(pids: list[int]) -> float:
    """Processor time that these processes have used, all their threads, seconds (proc_pid_stat(5))."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total * TICK_SEC


def pss_bytes(pid: int) -> int:
    """A process's share of memory: what it has alone, and its part of what it shares."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting.extend(children.get(found[-1], ()))
    return found


def bare_start_ms(python: str) -> float:
    """From nothing to the first byte of `python3 -I -S -c 'print(1)'`, milliseconds."""
    began = time.perf_counter()
    with subprocess.Popen([python, "-I", "-S", "-c", "print(1)"], stdout=subprocess.PIPE, env={}) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        return (time.perf_counter() - began) * 1000
