"""Wake-ups by LISTEN and NOTIFY: one connection a process, and a slow poll for what a lost connection may have missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import asyncpg
from sless_platform.postgres import translate

from sless_registry.adapters.postgres.statements import CHANNEL

POLL: Final = timedelta(seconds=5)
_PROBE: Final = timedelta(seconds=10)


class PostgresWakes:
    """See ports.Wakes. `listen` must run; without it only the poll wakes."""

    def __init__(
        self, dsn: str, *, poll: timedelta = POLL, listening: Callable[[bool], None] = lambda _there: None
    ) -> None:
        """`listening` is told when the database is there and when it is not any more."""
        self._dsn = dsn
        self._listening = listening
        self._poll = poll.total_seconds()
        self._woken = asyncio.Event()

    async def wait(self) -> None:
        """See ports.Wakes."""
        try:
            async with asyncio.timeout(self._poll):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    async def listen(self) -> None:
        """Listen until the connection is lost, which raises Unavailable; may be run again."""
        with translate():
            session = await asyncpg.connect(self._dsn, timeout=_PROBE.total_seconds())
            try:
                await session.add_listener(CHANNEL, self._notified)
                self._listening(True)
                self._woken.set()  # something may have been committed while nobody listened
                await self._watch_over(session)
            finally:
                self._listening(False)
                session.terminate()

    async def _watch_over(self, session: asyncpg.Connection) -> None:
        """A connection whose other side is gone without a word is noticed by asking it something."""
        lost = asyncio.Event()
        session.add_termination_listener(lambda _session: lost.set())
        while not lost.is_set():
            try:
                async with asyncio.timeout(_PROBE.total_seconds()):
                    await lost.wait()
            except TimeoutError:
                await session.execute("SELECT 1", timeout=_PROBE.total_seconds())
        raise asyncpg.ConnectionDoesNotExistError("the listening connection is lost")

    def _notified(self, *_notification: object) -> None:
        self._woken.set()
