"""Functions that are switched off become Ready once nothing routes to them any more; no deployment is waited for."""

from __future__ import annotations

import asyncio

from sless_registry.application.means import Means
from sless_registry.application.mutation import ONCE, mutation
from sless_registry.domain.record import changes
from sless_registry.domain.reports import switched_off
from sless_registry.domain.resources import Function
from sless_registry.ports import Answer


class Switching:
    """Settles what is being switched off. `run` must run, or only requests that wait themselves settle it."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._waiting: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    def notice(self, function: Function) -> None:
        """Note a function as it was just written."""
        if function.switching_off:
            self._waiting.put_nowait((function.revision, function.uid))

    async def run(self) -> None:
        """Settle without end, in the order of revisions. Raises Unavailable when the store is away; may be run again."""
        for function in await self._means.store.switching_off():
            self.notice(function)
        while True:
            revision, uid = await self._waiting.get()
            await self._means.acknowledgements.reached(revision, None)
            await self.settle(uid, up_to=revision)

    async def settle(self, uid: str, *, up_to: int) -> Function | None:
        """Store that the function is switched off, if it is being since this revision or an older one, which holds everywhere.

        Gives the function as it is then, None when it is gone.
        """
        means = self._means
        async with mutation(means, subject="", method="settle", request=ONCE) as under_way:
            record = await under_way.transaction.lock_uid(uid)
            if record is None:
                return None
            after = switched_off(record) if record.function.revision <= up_to else record
            answer = await under_way.write(changes(record, after), Answer(function=after.function))
        return answer.function
