"""What the idle platform keeps in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.bench.figures.processes import descendants, pss_bytes
from tests.bench.figures.table import Figure
from tests.support.embedded import Platform, running_platform

_SETTLE_SEC = 5


def measure() -> Sequence[Figure]:
    """PSS of everything that `sless up` runs but PostgreSQL, without a function."""
    with running_platform() as platform:
        time.sleep(_SETTLE_SEC)
        total = sum(pss_bytes(pid) for pid in _own(platform))
    return [Figure("PSS of the idle platform, without PostgreSQL", total / (1 << 20), "MiB", goal="≤ 200 MiB")]


def _own(platform: Platform) -> list[int]:
    status = platform.status()
    database = next(service["pid"] for service in status["services"] if service["name"] == "postgres")
    theirs = set(descendants(database))
    return [pid for pid in descendants(status["pid"]) if pid not in theirs]
