"""Measures all that `make bench` shows; every measurement also runs alone: `python -m tests.bench.figures warm memory`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from tests.bench.figures import cold, dependencies, memory, starting, warm
from tests.bench.figures.table import Figure, rendered

MEASUREMENTS: Mapping[str, Callable[[], Sequence[Figure]]] = {
    "cold": cold.measure,
    "dependencies": dependencies.measure,
    "starting": starting.measure,
    "memory": memory.measure,
    "warm": warm.measure,
}


def main(names: Sequence[str]) -> int:
    """Prints the table; 2 when a name is not known."""
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        print(f"no measurement {', '.join(unknown)}: there are {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    for name in names or MEASUREMENTS:
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        figures += MEASUREMENTS[name]()
    print(rendered(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
