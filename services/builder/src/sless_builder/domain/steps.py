"""Steps of a build that nobody trusts: what one may do, and how it ended."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The most that one step may take.

    memory_bytes  of all its processes together.
    disk_bytes    of what is in its writable folders, also of what was there before.
    processes     at the same time, threads too.
    output_bytes  of what it prints.
    """

    seconds: float
    memory_bytes: int
    disk_bytes: int
    processes: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Step:
    """One command that nobody trusts.

    argv      an absolute program and its arguments; everybody on the machine may see them.
    env       its whole environment.
    shown     files and folders that it sees at their own paths and cannot write. What is in them must be readable
              for all; how a parent is protected does not matter. The system's programs and libraries are always there.
    writable  folders that it sees at their own paths and may write; they are given to the sandbox's user.
    cwd       below one of `shown` or `writable`.
    network   whether it may reach the network of this machine; else it has none.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    shown: tuple[Path, ...]
    writable: tuple[Path, ...]
    cwd: Path
    limits: StepLimits
    network: bool


class Exceeded(enum.Enum):
    """The limit that ended a step."""

    TIME = "time"
    MEMORY = "memory"
    DISK = "disk"
    PROCESSES = "processes"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step ended: by itself with an exit code, by a signal, or because a limit was reached."""

    exit_code: int | None
    signal: int | None
    exceeded: Exceeded | None

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself, and says that all went well."""
        return self.exit_code == 0 and self.exceeded is None
