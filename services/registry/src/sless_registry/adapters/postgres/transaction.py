"""A write transaction on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

from sless_platform.postgres import Connection

from sless_registry.adapters.postgres import rows, statements
from sless_registry.domain.record import Changes, Record
from sless_registry.domain.resources import Kind, Namespace, Version
from sless_registry.ports import RequestKey, ResourceType, StoredAnswer


class PostgresTransaction:
    """See ports.Transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def answer(self, key: RequestKey) -> StoredAnswer | None:
        """See ports.Transaction."""
        await self._connection.execute(statements.LOCK_REQUEST, "\n".join((key.subject, key.method, key.request_id)))
        row = await self._connection.fetchrow(statements.ANSWER, key.subject, key.method, key.request_id)
        return None if row is None else rows.stored_answer(key, row)

    async def ensure_namespace(self, name: str, now: datetime) -> Namespace:
        """See ports.Transaction."""
        while (known := await self.lock_namespace(name)) is None:
            await self._connection.execute(statements.MAKE_NAMESPACE, name, now)
        return known

    async def lock_namespace(self, name: str) -> Namespace | None:
        """See ports.Transaction."""
        row = await self._connection.fetchrow(statements.LOCK_NAMESPACE, name)
        return None if row is None else rows.namespace(row)

    async def remove_namespace(self, name: str) -> None:
        """See ports.Transaction."""
        await self._connection.execute(statements.REMOVE_NAMESPACE, name)

    async def count_functions(self, namespace: str) -> int:
        """See ports.Transaction."""
        return int(await self._connection.fetchval(statements.COUNT_FUNCTIONS, namespace))

    async def lock(self, namespace: str, name: str) -> Record | None:
        """See ports.Transaction."""
        # A row that was waited for may be one that has given its name to another, which only a second look can see.
        return await self._locked(statements.LOCK_FUNCTION, namespace, name) or await self._locked(
            statements.LOCK_FUNCTION, namespace, name
        )

    async def lock_uid(self, uid: str) -> Record | None:
        """See ports.Transaction."""
        return await self._locked(statements.LOCK_FUNCTION_BY_UID, uid)

    async def lock_version(self, version_uid: str) -> Record | None:
        """See ports.Transaction."""
        return await self._locked(statements.LOCK_FUNCTION_BY_VERSION, version_uid)

    async def lock_all(self, namespace: str) -> Sequence[Record]:
        """See ports.Transaction."""
        found = await self._connection.fetch(statements.LOCK_FUNCTIONS, namespace)
        versions = await self._versions([row["uid"] for row in found])
        return [Record(rows.function(row), versions.get(row["uid"], ())) for row in found]

    async def deletion(self, namespace: str, name: str, *, kind: Kind | None) -> int:
        """See ports.Transaction."""
        return int(await self._connection.fetchval(statements.DELETION, namespace, name, kind))

    async def finalized(self, function_uid: str, service: str) -> frozenset[str]:
        """See ports.Transaction."""
        await self._connection.execute(statements.NOTE_FINALIZED, function_uid, service)
        done = await self._connection.fetch(statements.FINALIZED, function_uid)
        return frozenset(row["service"] for row in done)

    async def write(self, changes: Changes, stored: StoredAnswer | None = None) -> int:
        """See ports.Transaction."""
        answers = [] if stored is None else [rows.answer_row(stored)]
        if not changes:
            await self._connection.execute(statements.PUT_ANSWER, answers)
            return 0
        events = _events(changes)
        revision = await self._connection.fetchval(
            statements.WRITE,
            [rows.function_row(function) for function in changes.functions],
            [rows.version_row(version) for version in changes.versions],
            answers,
            changes.dropped_versions,
            changes.purged_functions,
            [type_ for type_, _ in events],
            [uid for _, uid in events],
        )
        return int(revision)

    async def _locked(self, statement: str, *arguments: str) -> Record | None:
        row = await self._connection.fetchrow(statement, *arguments)
        if row is None:
            return None
        function = rows.function(row)
        versions = await self._versions([function.uid]) if function.last_version else {}
        return Record(function, versions.get(function.uid, ()))

    async def _versions(self, function_uids: list[str]) -> dict[str, tuple[Version, ...]]:
        """The functions' versions by number. Read after the lock was had, so that none is outdated."""
        found = await self._connection.fetch(statements.VERSIONS_OF, function_uids)
        grouped = groupby(map(rows.version, found), key=lambda version: version.function_uid)
        return {uid: tuple(versions) for uid, versions in grouped}


def _events(changes: Changes) -> list[tuple[ResourceType, str]]:
    return [
        *((ResourceType.FUNCTION, function.uid) for function in changes.functions),
        *((ResourceType.VERSION, version.uid) for version in changes.versions),
        *((ResourceType.PURGE, uid) for uid in changes.purged_functions),
        *((ResourceType.VERSION_PURGE, uid) for uid in changes.dropped_versions),
    ]
