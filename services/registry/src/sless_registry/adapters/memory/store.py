"""The store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

from sless_registry.adapters.memory.tables import Tables
from sless_registry.adapters.memory.transaction import MemoryTransaction
from sless_registry.adapters.memory.wakes import MemoryWakes
from sless_registry.domain.resources import Function, Kind, Namespace, Version
from sless_registry.ports import ChangePage, Event, FunctionAt, ResourceType, Span, Transaction, WorkloadSource


class MemoryStore:
    """See ports.Store. Transactions run one after the other on a copy that takes the place of the original at the end."""

    def __init__(self) -> None:
        self.wakes = MemoryWakes()
        self._tables = Tables()
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """See ports.Store."""
        async with self._turn:
            changed = self._tables.copy()
            yield MemoryTransaction(changed)
            self._tables = changed
        self.wakes.wake()

    async def revision(self) -> int:
        """See ports.Store."""
        return self._tables.revision

    async def namespace(self, name: str) -> Namespace | None:
        """See ports.Store."""
        return self._tables.namespaces.get(name)

    async def function(self, namespace: str, name: str) -> FunctionAt:
        """See ports.Store."""
        return FunctionAt(self._tables.named(namespace, name), self._tables.revision)

    async def function_by_uid(self, uid: str) -> FunctionAt:
        """See ports.Store."""
        return FunctionAt(self._tables.functions.get(uid), self._tables.revision)

    async def functions(self, namespace: str, *, kind: Kind | None, after: str, limit: int) -> Sequence[Function]:
        """See ports.Store."""
        live = self._tables.live(namespace)
        return [each for each in live if each.name > after and kind in (None, each.kind)][:limit]

    async def version(self, function_uid: str, number: int) -> Version | None:
        """See ports.Store."""
        versions = self._tables.versions_of(function_uid)
        if number:
            return next((version for version in versions if version.number == number), None)
        return versions[-1] if versions else None

    async def versions(self, function_uid: str, *, before: int, limit: int) -> Sequence[Version]:
        """See ports.Store."""
        versions = reversed(self._tables.versions_of(function_uid))
        return [version for version in versions if not before or version.number < before][:limit]

    async def workload(self, function_uid: str) -> WorkloadSource | None:
        """See ports.Store."""
        tables = self._tables
        function = tables.functions.get(function_uid)
        if function is None or function.deleted_at is not None:
            return None
        namespace = tables.namespaces.get(function.namespace)
        return WorkloadSource(
            function=function,
            version=tables.record(function).version(function.desired_version),
            serving=tables.record(function).version(function.active_version),
            namespace_number=0 if namespace is None else namespace.number,
            revision=tables.revision,
        )

    async def switching_off(self) -> Sequence[Function]:
        """See ports.Store."""
        return [function for function in self._tables.functions.values() if function.switching_off]

    async def span(self) -> Span:
        """See ports.Store."""
        return self._tables.span()

    async def events(self, *, after: int, limit: int) -> Sequence[Event]:
        """See ports.Store."""
        return self._tables.events_after(after, limit)

    async def changes(self, types: frozenset[ResourceType], *, after: int, limit: int) -> ChangePage:
        """See ports.Store."""
        return self._tables.changes_after(types, after, limit)

    async def all_functions(self, *, after: str, limit: int) -> Sequence[Function]:
        """See ports.Store."""
        return [function for uid, function in sorted(self._tables.functions.items()) if uid > after][:limit]

    async def all_versions(self, *, after: str, limit: int) -> Sequence[Version]:
        """See ports.Store."""
        return [version for uid, version in sorted(self._tables.versions.items()) if uid > after][:limit]

    async def trim(self, *, events_kept: int, answers_before: datetime) -> None:
        """See ports.Store."""
        async with self._turn:
            tables = self._tables
            floor = max(tables.floor, tables.revision - events_kept)
            self._tables = replace(
                tables,
                floor=floor,
                events=[event for event in tables.events if event.revision > floor],
                answers={key: each for key, each in tables.answers.items() if each.created_at >= answers_before},
            )
