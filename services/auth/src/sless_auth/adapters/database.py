"""PostgreSQL that may be away: auth starts without it, and goes on without it, because users' tokens don't need it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
from sless_platform.backoff import Backoff
from sless_platform.errors import DeadlineExceeded, Unavailable
from sless_platform.logging import get_logger
from sless_platform.postgres import Connection, transaction

from sless_auth.errors import ApiKeysUnavailable

_AWAY = "API keys can't be looked up right now; try again"

log = get_logger(__name__)


class Database:
    """A pool that is opened in the background."""

    def __init__(self, open_pool: Callable[[], Awaitable[asyncpg.Pool]]) -> None:
        """`open_pool` raises Unavailable or DeadlineExceeded when that is to be tried again."""
        self._open_pool = open_pool
        self._pool: asyncpg.Pool | None = None

    async def open(self) -> None:
        """Return once it is open, however long that takes. Raises what trying again does not help against."""
        for pause in Backoff().delays():
            try:
                self._pool = await self._open_pool()
                return
            except (Unavailable, DeadlineExceeded) as error:
                log.warning(
                    "the database can't be reached: only tokens of the issuer are verified", error=error.message
                )
            await asyncio.sleep(pause.total_seconds())

    async def close(self) -> None:
        """Close what is open."""
        if self._pool is not None:
            await self._pool.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A transaction. Raises ApiKeysUnavailable while the database is away."""
        if self._pool is None:
            raise ApiKeysUnavailable(_AWAY)
        try:
            async with transaction(self._pool) as acquired:
                yield acquired
        except (Unavailable, DeadlineExceeded) as error:
            raise ApiKeysUnavailable(_AWAY, retry_after=error.retry_after) from error
