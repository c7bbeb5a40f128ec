"""Wake-ups within one process."""

from __future__ import annotations

import asyncio


class MemoryWakes:
    """See ports.Wakes. Needs no slow poll: a wake-up cannot be lost here."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something was committed."""
        self._woken.set()

    async def wait(self) -> None:
        """See ports.Wakes."""
        await self._woken.wait()
        self._woken.clear()
