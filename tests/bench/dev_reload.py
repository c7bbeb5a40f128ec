"""From a save to the new code's answer under `sless dev`, beside a plain start: `python tests/bench/dev_reload.py [ROUNDS]`.

Medians and the longest, milliseconds, rounds interleaved. No assertion.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import httpx

from tests.support.dev import running_dev


def saved_to_answered(client: httpx.Client, url: str, file: Path, number: int) -> float:
    """Saves another version and asks until it answers."""
    new = file.with_suffix(".new")
    new.write_text(f"def handle(event):\n    return {number}\n")
    began = time.perf_counter()
    new.rename(file)
    while client.get(url).text != str(number):
        pass
    return (time.perf_counter() - began) * 1000


def plainly() -> float:
    """A start of the interpreter that does nothing else."""
    began = time.perf_counter()
    subprocess.run([os.path.realpath(sys.executable), "-I", "-S", "-c", "print(1)"], check=True, capture_output=True)
    return (time.perf_counter() - began) * 1000


def main(rounds: int) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        file = home / "code" / "handler.py"
        file.parent.mkdir()
        file.write_text("def handle(event):\n    return 0\n")
        with running_dev(file.parent, home=home) as dev, httpx.Client(timeout=30) as client:
            dev.saw("ready")
            pairs = [(saved_to_answered(client, dev.url, file, number), plainly()) for number in range(1, rounds + 1)]
    for title, figures in (("save → new answer", [a for a, _ in pairs]), ("plain start", [b for _, b in pairs])):
        print(f"{title:20} median {statistics.median(figures):7.1f} ms   longest {max(figures):7.1f} ms")
    print(f"rounds {rounds}, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 21)
