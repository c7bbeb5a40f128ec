"""Whether the machine has memory for one more instance: what may be had, less what was promised to others and is not used yet.

An instance takes little at first and may take all that it may later; by what is free alone too many would be let in, and the kernel
would end processes of the machine's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from . import watchdog
from .cgroups import memory_limit, used_memory
from .instance import Instance
from .protocol import NO_MEMORY, RequestError

LEAST_RESERVE = 256 << 20
RESERVED_SHARE = 20
"""Of what the machine has, one part in so many is left for everything else, and LEAST_RESERVE at least."""

MEMINFO = "/proc/meminfo"
_KB = 1024


class Promise:
    """What an instance may take in bytes, and how much it has, which is asked for only when it matters."""

    __slots__ = ("most", "used")

    def __init__(self, most: int, used: Callable[[], int]) -> None:
        self.most = most
        self.used = used


def shortage(wanted: int, available: int, reserve: int, promises: Sequence[Promise]) -> int:
    """Bytes that are missing for an instance that may take `wanted`; 0 when it may be started.

    available  bytes that could be had now.
    reserve    bytes of them that must be left when all instances have taken what they may.
    """
    room = available - reserve - wanted
    if room - sum(promise.most for promise in promises) >= 0:
        return 0
    owed = sum(max(0, promise.most - promise.used()) for promise in promises)
    return max(0, owed - room)


class Machine:
    """This machine's memory, and that of the control groups that the platform itself is in."""

    def __init__(self, groups: Iterable[str], reserve_mb: int | None, meminfo: str | None = None) -> None:
        """`groups`: folders of those groups in the hierarchy that limits memory. `reserve_mb`: None for the default."""
        self._groups = tuple(groups)
        self._meminfo = meminfo or MEMINFO
        total = min([self._fields()["MemTotal"], *(limit for limit, _ in self._limits())])
        default = max(LEAST_RESERVE, total // RESERVED_SHARE)
        self.reserve = default if reserve_mb is None else reserve_mb << 20

    def available(self) -> int:
        """Bytes that could be had now without taking them from anything that runs."""
        return min([self._fields()["MemAvailable"], *(limit - used for limit, used in self._limits())])

    def _fields(self) -> dict[str, int]:
        with open(self._meminfo, encoding="ascii") as file:
            pairs = (line.split(":") for line in file)
            return {name: int(value.split()[0]) * _KB for name, value in pairs}

    def _limits(self) -> list[tuple[int, int]]:
        """(limit, use) of each group that has a limit."""
        limits = [(memory_limit(folder), folder) for folder in self._groups]
        return [(limit, used_memory(folder)) for limit, folder in limits if limit is not None]


class Admission:
    """Says no to a start for which there is no memory."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def check(self, wanted: int, running: Iterable[Instance]) -> None:
        """Raises RequestError when an instance that may take `wanted` bytes cannot be started beside those that run."""
        running = tuple(running)
        families: dict[int, list[int]] = {}

        def used_by(instance: Instance) -> int:
            if not families:
                families.update(watchdog.families(other.pid for other in running))
            return instance.used_bytes(families.get(instance.pid, []))

        promises = [Promise(instance.most_bytes, partial(used_by, instance)) for instance in running]
        missing = shortage(wanted, self._machine.available(), self._machine.reserve, promises)
        if missing:
            raise RequestError(NO_MEMORY, in_words(wanted, missing), step="find memory")


def in_words(wanted: int, missing: int) -> str:
    """Why an instance is not started, for its owner."""
    return (
        f"the machine has no memory for one more instance now: it may take {wanted >> 20} MiB, "
        f"and {-(-missing >> 20)} MiB are missing"
    )
