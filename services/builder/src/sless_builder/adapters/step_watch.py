"""Looks after a step's limits while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from sless_builder.adapters import step_usage
from sless_builder.adapters.control_groups import ControlGroup
from sless_builder.adapters.step_process import StepProcess
from sless_builder.application.finishing import in_thread
from sless_builder.domain.steps import Exceeded, Step

_EVERY_SEC: Final = 0.1
_COST: Final = 5
"""One look takes at most a part of this many of the time: folders with very many files are looked at less often."""


class StepWatch:
    """Watches a step's processes and folders.

    `kept`: what the group bounds ("memory", "pids"); the rest is measured.
    """

    def __init__(self, process: StepProcess, step: Step, *, group: ControlGroup, kept: frozenset[str]) -> None:
        self._process = process
        self._folders = step.writable
        self._limits = step.limits
        self._group = group
        self._kept = kept

    async def exceeded(self) -> Exceeded:
        """The first limit that is reached; waits for that."""
        while True:
            began = time.monotonic()
            found = await in_thread(self.look)
            if found is not None:
                return found
            await asyncio.sleep(max(_EVERY_SEC, _COST * (time.monotonic() - began)))

    def look(self) -> Exceeded | None:
        """The limit that is reached now, if any."""
        if (found := self._group.exceeded()) is not None:
            return found
        pids = step_usage.tree(self._process.pid)
        if "memory" not in self._kept and self._memory(pids) > self._limits.memory_bytes:
            return Exceeded.MEMORY
        if "pids" not in self._kept and step_usage.threads(pids) > self._limits.processes:
            return Exceeded.PROCESSES
        if step_usage.disk(self._folders, pids) > self._limits.disk_bytes:
            return Exceeded.DISK
        return None

    def _memory(self, pids: Sequence[int]) -> int:
        files = step_usage.memory_files(self._process.init) if self._process.private else 0
        return step_usage.memory(pids, self._folders) + files
