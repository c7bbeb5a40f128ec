"""What a start costs by the launcher, beside a plain start of the same interpreter: `python tests/bench/launcher_start.py [ROUNDS]`.

From the request to the first byte that the program prints, in milliseconds, rounds interleaved, medians. No assertion.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.launcher import Launcher, LauncherClient, conditions, running_launcher

CODE = "print(1)"


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


def main(rounds: int) -> None:
    print(f"medians of {rounds} interleaved rounds, ms; {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print(f"{'launcher runs as':32} {'level':12} {'start answered':>14} {'first byte':>10} {'plain':>8} {'over it':>8}")
    for under in conditions():
        with running_launcher(under) as launcher:
            client = launcher.connect()
            client.call("follow")
            by_launcher(launcher, client, 0)
            found = [(*by_launcher(launcher, client, number), plainly(launcher)) for number in range(1, rounds + 1)]
            started, first, plain = (statistics.median(column) for column in zip(*found, strict=True))
            level = client.call("isolation")["level"]
            print(f"{under.name:32} {level:12} {started:14.1f} {first:10.1f} {plain:8.1f} {first - plain:8.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
