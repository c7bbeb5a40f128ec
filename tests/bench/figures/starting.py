"""How long `sless up` takes: the first time ever, and on a folder that is there."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.bench.figures.table import Figure, middle
from tests.support.embedded import running_platform

ROUNDS = 3


def measure() -> Sequence[Figure]:
    """Seconds from the command to its return (`--detach` returns when the platform answers)."""
    first, again = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        with running_platform() as platform:
            first.append(time.perf_counter() - began)
            platform.down()
            began = time.perf_counter()
            platform.up()
            again.append(time.perf_counter() - began)
    return [
        Figure("`sless up`, first ever", middle(first), "s", goal="aim: 12 s"),
        Figure("`sless up`, existing folder", middle(again), "s", goal="aim: 5 s"),
    ]
