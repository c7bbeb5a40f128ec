"""Forgetting what is kept for a time only."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from sless_registry.application.means import Means

PERIOD: Final = timedelta(minutes=1)


class Housekeeping:
    """Trims events and stored answers. `run` must run, or they grow without bound."""

    def __init__(self, means: Means, period: timedelta = PERIOD) -> None:
        self._means = means
        self._period = period

    async def run(self) -> None:
        """Trim now and then, without end. Raises Unavailable when the store is away; may be run again."""
        while True:
            await self.trim()
            await asyncio.sleep(self._period.total_seconds())

    async def trim(self) -> None:
        """Forget what `Policy` keeps no longer."""
        policy = self._means.policy
        before = self._means.now() - policy.answers_kept
        await self._means.store.trim(events_kept=policy.events_kept, answers_before=before)
