"""API keys in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from sless_auth.adapters import sql
from sless_auth.adapters.database import Database
from sless_auth.domain.api_keys import ApiKey, Position, StoredKey
from sless_auth.errors import LimitReached, RequestIdReused


class PostgresKeys:
    """The port ApiKeyStore."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, stored: StoredKey, *, request_id: str, limit: int, now: datetime) -> None:
        """See ApiKeyStore."""
        key = stored.key
        try:
            async with self._database.transaction() as acquired:
                await acquired.execute(sql.LOCK_NAMESPACE, key.namespace)
                if await acquired.fetchval(sql.COUNT, key.namespace) >= limit:
                    await acquired.execute(sql.REMOVE_EXPIRED, key.namespace, now)
                    await _check_room(acquired, key.namespace, limit)
                await acquired.execute(sql.ADD, *_values(stored), UUID(request_id) if request_id else None)
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name != "api_keys_by_request":
                raise
            raise RequestIdReused(
                f"request_id {request_id} has made an API key already: its secret is shown once"
            ) from None

    async def find(self, key_id: str) -> StoredKey | None:
        """See ApiKeyStore."""
        async with self._database.transaction() as acquired:
            row = await acquired.fetchrow(sql.FIND, key_id)
        return None if row is None else StoredKey(_key(row), row["digest"])

    async def page(self, namespace: str, *, after: Position | None, limit: int) -> Sequence[ApiKey]:
        """See ApiKeyStore."""
        place = (None, "") if after is None else (after.created_at, after.id)
        async with self._database.transaction() as acquired:
            return [_key(row) for row in await acquired.fetch(sql.PAGE, namespace, *place, limit)]

    async def remove(self, namespace: str, key_id: str) -> bool:
        """See ApiKeyStore."""
        async with self._database.transaction() as acquired:
            return await acquired.fetchval(sql.REMOVE, namespace, key_id) is not None

    async def remove_all(self, namespace: str) -> Sequence[str]:
        """See ApiKeyStore."""
        async with self._database.transaction() as acquired:
            return [row["id"] for row in await acquired.fetch(sql.REMOVE_ALL, namespace)]

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """See ApiKeyStore."""
        async with self._database.transaction() as acquired:
            await acquired.execute(sql.NOTE_USES, list(uses.keys()), list(uses.values()))


async def _check_room(acquired: Any, namespace: str, limit: int) -> None:
    if await acquired.fetchval(sql.COUNT, namespace) >= limit:
        raise LimitReached(f"namespace {namespace!r} has {limit} API keys, as many as it may: revoke one first")


def _values(stored: StoredKey) -> tuple[object, ...]:
    key = stored.key
    return (key.id, key.namespace, key.name, stored.digest, key.created_by, key.created_at, key.expires_at)


def _key(row: Mapping[str, Any]) -> ApiKey:
    return ApiKey(
        id=row["id"],
        namespace=row["namespace"],
        name=row["name"],
        created_by=row["created_by"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        last_used_at=row["last_used_at"],
    )
