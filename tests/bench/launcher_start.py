"""What a start costs by the launcher, beside a plain start of the same interpreter: `python tests/bench/launcher_start.py [ROUNDS]`.

From the request to the first byte that the program prints, medians, and the processor's time of all processes from start to end,
means; milliseconds, rounds interleaved. No assertion.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.launcher import Launcher, LauncherClient, conditions, running_launcher

CODE = "print(1)"
COLUMNS = ("start answered", "first byte", "plain", "more", "cpu", "plain cpu", "more")


def by_launcher(launcher: Launcher, client: LauncherClient, number: int) -> tuple[float, float]:
    """To the answer of `start` (the program is being run), and to its first byte."""
    spec = launcher.spec(f"i-{number}", CODE)
    began = time.perf_counter()
    client.call("start", spec=spec)
    started = time.perf_counter()
    client.printed(f"i-{number}", "1")
    first_byte = time.perf_counter()
    client.ended(f"i-{number}")
    return (started - began) * 1000, (first_byte - began) * 1000


def plainly(launcher: Launcher) -> float:
    """The same program as a child of this process."""
    command = [str(launcher.python.executable), "-I", "-S", "-c", CODE]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={}) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        return (time.perf_counter() - began) * 1000


def spent_by(pid: int) -> float:
    """Processor time of a process and of its children that have ended, ms (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * 1000 / os.sysconf("SC_CLK_TCK")


def spent_by_children() -> float:
    """The same of this process's children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1000


def measure(launcher: Launcher, rounds: int) -> list[float]:
    """The figures in the order of COLUMNS."""
    client = launcher.connect()
    client.call("follow")
    by_launcher(launcher, client, 0)
    spent, spent_plainly = spent_by(launcher.process.pid), spent_by_children()
    found = [(*by_launcher(launcher, client, number), plainly(launcher)) for number in range(1, rounds + 1)]
    started, first, plain = (statistics.median(column) for column in zip(*found, strict=True))
    cpu = (spent_by(launcher.process.pid) - spent) / rounds
    plain_cpu = (spent_by_children() - spent_plainly) / rounds
    return [started, first, plain, first - plain, cpu, plain_cpu, cpu - plain_cpu]


def main(rounds: int) -> None:
    print(f"{rounds} rounds, ms; {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print(f"{'launcher runs as':30}", *(f"{name:>14}" for name in COLUMNS))
    for under in conditions():
        with running_launcher(under) as launcher:
            figures = measure(launcher, rounds)
        print(f"{under.name:30}", *(f"{figure:14.1f}" for figure in figures))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
