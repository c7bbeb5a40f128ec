"""The store in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import asyncpg
from sless_platform.postgres import Connection, connection, transaction

from sless_registry.adapters.postgres import rows, statements
from sless_registry.adapters.postgres.transaction import PostgresTransaction
from sless_registry.domain.resources import Function, Kind, Namespace, Version
from sless_registry.ports import ChangePage, Event, FunctionAt, ResourceType, Span, Transaction, WorkloadSource


class PostgresStore:
    """See ports.Store. The pool is the caller's to close."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """See ports.Store."""
        async with transaction(self._pool) as acquired:
            yield PostgresTransaction(acquired)

    async def revision(self) -> int:
        """See ports.Store."""
        async with connection(self._pool) as acquired:
            return int(await acquired.fetchval(statements.REVISION))

    async def namespace(self, name: str) -> Namespace | None:
        """See ports.Store."""
        row = await self._row(statements.NAMESPACE, name)
        return None if row is None else rows.namespace(row)

    async def function(self, namespace: str, name: str) -> FunctionAt:
        """See ports.Store."""
        return _function_at(await self._row(statements.FUNCTION, namespace, name))

    async def function_by_uid(self, uid: str) -> FunctionAt:
        """See ports.Store."""
        return _function_at(await self._row(statements.FUNCTION_BY_UID, uid))

    async def functions(self, namespace: str, *, kind: Kind | None, after: str, limit: int) -> Sequence[Function]:
        """See ports.Store."""
        found = await self._rows(statements.FUNCTIONS, namespace, after, kind, limit)
        return [rows.function(row) for row in found]

    async def version(self, function_uid: str, number: int) -> Version | None:
        """See ports.Store."""
        if number:
            row = await self._row(statements.VERSION, function_uid, number)
        else:
            row = await self._row(statements.NEWEST_VERSION, function_uid)
        return None if row is None else rows.version(row)

    async def versions(self, function_uid: str, *, before: int, limit: int) -> Sequence[Version]:
        """See ports.Store."""
        return [rows.version(row) for row in await self._rows(statements.VERSIONS, function_uid, before, limit)]

    async def workload(self, function_uid: str) -> WorkloadSource | None:
        """See ports.Store."""
        row = await self._row(statements.WORKLOAD, function_uid)
        if row is None:
            return None
        version, serving = (None if row[name] is None else rows.version(row[name]) for name in ("version", "serving"))
        return WorkloadSource(rows.function(row), version, serving, row["namespace_number"], row["read_revision"])

    async def switching_off(self) -> Sequence[Function]:
        """See ports.Store."""
        return [rows.function(row) for row in await self._rows(statements.SWITCHING_OFF)]

    async def span(self) -> Span:
        """See ports.Store."""
        row = await self._row(statements.SPAN)
        assert row is not None  # noqa: S101 - a SELECT without FROM has one row
        return Span(row["floor"], row["head"])

    async def events(self, *, after: int, limit: int) -> Sequence[Event]:
        """See ports.Store."""
        found = await self._rows(statements.EVENTS, after, limit)
        return [Event(row["revision"], ResourceType(row["type"]), row["uid"]) for row in found]

    async def changes(self, types: frozenset[ResourceType], *, after: int, limit: int) -> ChangePage:
        """See ports.Store."""
        # One snapshot: events, their resources and the floor belong together.
        async with transaction(self._pool, isolation="repeatable_read", readonly=True) as acquired:
            bounds = await acquired.fetchrow(statements.CHANGES_BOUND, after, limit)
            return await _page(acquired, types, after, bounds)

    async def all_functions(self, *, after: str, limit: int) -> Sequence[Function]:
        """See ports.Store."""
        return [rows.function(row) for row in await self._rows(statements.ALL_FUNCTIONS, after, limit)]

    async def all_versions(self, *, after: str, limit: int) -> Sequence[Version]:
        """See ports.Store."""
        return [rows.version(row) for row in await self._rows(statements.ALL_VERSIONS, after, limit)]

    async def trim(self, *, events_kept: int, answers_before: datetime) -> None:
        """See ports.Store."""
        async with transaction(self._pool) as acquired:
            floor = await acquired.fetchval(statements.RAISE_FLOOR, events_kept)
            if floor is not None:
                await acquired.execute(statements.FORGET_EVENTS, floor)
            await acquired.execute(statements.FORGET_ANSWERS, answers_before)

    async def _row(self, statement: str, *arguments: object) -> rows.Row | None:
        async with connection(self._pool) as acquired:
            row: rows.Row | None = await acquired.fetchrow(statement, *arguments)
            return row

    async def _rows(self, statement: str, *arguments: object) -> Sequence[rows.Row]:
        async with connection(self._pool) as acquired:
            found: Sequence[rows.Row] = await acquired.fetch(statement, *arguments)
            return found


def _function_at(row: rows.Row | None) -> FunctionAt:
    assert row is not None  # noqa: S101 - the revision has its row always
    return FunctionAt(None if row["uid"] is None else rows.function(row), row["read_revision"])


async def _page(acquired: Connection, types: frozenset[ResourceType], after: int, bounds: rows.Row) -> ChangePage:
    async def changed(type_: ResourceType, statement: str) -> Sequence[rows.Row]:
        if type_ not in types:
            return ()
        found: Sequence[rows.Row] = await acquired.fetch(statement, after, bounds["bound"])
        return found

    functions = await changed(ResourceType.FUNCTION, statements.CHANGED_FUNCTIONS)
    versions = await changed(ResourceType.VERSION, statements.CHANGED_VERSIONS)
    purged = await changed(ResourceType.PURGE, statements.PURGED_FUNCTIONS)
    purged_versions = await changed(ResourceType.VERSION_PURGE, statements.PURGED_VERSIONS)
    return ChangePage(
        span=Span(bounds["floor"], bounds["head"]),
        revision=bounds["bound"],
        functions=tuple(rows.function(row) for row in functions),
        versions=tuple(rows.version(row) for row in versions),
        purged=tuple(row["uid"] for row in purged),
        purged_versions=tuple(row["uid"] for row in purged_versions),
    )
