"""Signals: within this process, and through PostgreSQL's LISTEN between processes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

import asyncpg
from sless_platform.backoff import Backoff
from sless_platform.logging import get_logger

CHANNEL: Final = "sless_builder"
_CHECK_SEC: Final = 30

log = get_logger(__name__)


class LocalSignals:
    """Signals of one event loop."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[_Listener]] = defaultdict(set)

    @contextmanager
    def listen(self, topic: str) -> Iterator[_Listener]:
        """See Signals."""
        listener = _Listener()
        self._listeners[topic].add(listener)
        try:
            yield listener
        finally:
            self._listeners[topic].discard(listener)
            if not self._listeners[topic]:
                del self._listeners[topic]

    def publish(self, topic: str) -> None:
        """Something may have changed."""
        for listener in self._listeners.get(topic, ()):
            listener.event.set()

    def publish_all(self) -> None:
        """Anything may have changed."""
        for topic in list(self._listeners):
            self.publish(topic)


class _Listener:
    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait(self, limit: timedelta) -> bool:
        """See Listener."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit.total_seconds()):
                await self.event.wait()
        happened = self.event.is_set()
        self.event.clear()
        return happened


class PostgresSignals(LocalSignals):
    """Signals of every process that shares a database. `run` listens until it is cancelled."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn

    async def run(self) -> None:
        """Listen, again and again: what was said while nobody listened is made up for by waking everyone."""
        pauses = Backoff().delays()
        while True:
            try:
                session = await asyncpg.connect(self._dsn, timeout=10)
            except (OSError, asyncpg.PostgresError, TimeoutError):
                await asyncio.sleep(next(pauses).total_seconds())
                continue
            pauses = Backoff().delays()
            try:
                await self._listen(session)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
                log.warning("no signals from the database", error=str(error))
            finally:
                session.terminate()

    async def _listen(self, session: asyncpg.Connection) -> None:
        await session.add_listener(CHANNEL, self._heard)
        self.publish_all()
        closed = asyncio.Event()
        session.add_termination_listener(lambda _session: closed.set())
        while not closed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SEC):
                    await closed.wait()
            await session.execute("SELECT 1", timeout=10)  # a peer that vanished without a word

    def _heard(self, _session: object, _pid: int, _channel: str, topic: str) -> None:
        self.publish(topic)
