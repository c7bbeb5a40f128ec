"""A transaction on the memory store's copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sless_registry.adapters.memory.tables import Tables
from sless_registry.domain.record import Changes, Record
from sless_registry.domain.resources import Kind, Namespace
from sless_registry.ports import Event, RequestKey, ResourceType, StoredAnswer


class MemoryTransaction:
    """See ports.Transaction. There are no locks: only one transaction runs at a time."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def answer(self, key: RequestKey) -> StoredAnswer | None:
        """See ports.Transaction."""
        return self._tables.answers.get(key)

    async def ensure_namespace(self, name: str, now: datetime) -> Namespace:
        """See ports.Transaction."""
        known = self._tables.namespaces.get(name)
        if known is None:
            self._tables.namespaces_made += 1
            known = Namespace(name, self._tables.namespaces_made, now)
            self._tables.namespaces[name] = known
        return known

    async def lock_namespace(self, name: str) -> Namespace | None:
        """See ports.Transaction."""
        return self._tables.namespaces.get(name)

    async def remove_namespace(self, name: str) -> None:
        """See ports.Transaction."""
        self._tables.namespaces.pop(name, None)

    async def count_functions(self, namespace: str) -> int:
        """See ports.Transaction."""
        return len(self._tables.live(namespace))

    async def lock(self, namespace: str, name: str) -> Record | None:
        """See ports.Transaction."""
        function = self._tables.named(namespace, name)
        return None if function is None else self._tables.record(function)

    async def lock_uid(self, uid: str) -> Record | None:
        """See ports.Transaction."""
        function = self._tables.functions.get(uid)
        return None if function is None else self._tables.record(function)

    async def lock_version(self, version_uid: str) -> Record | None:
        """See ports.Transaction."""
        version = self._tables.versions.get(version_uid)
        return None if version is None else await self.lock_uid(version.function_uid)

    async def lock_all(self, namespace: str) -> Sequence[Record]:
        """See ports.Transaction."""
        return [self._tables.record(function) for function in self._tables.live(namespace)]

    async def deletion(self, namespace: str, name: str, *, kind: Kind | None) -> int:
        """See ports.Transaction."""
        return max((function.revision for function in self._tables.deleted(namespace, name, kind)), default=0)

    async def finalized(self, function_uid: str, service: str) -> frozenset[str]:
        """See ports.Transaction."""
        done = self._tables.finalized.get(function_uid, frozenset()) | {service}
        self._tables.finalized[function_uid] = done
        return done

    async def write(self, changes: Changes, stored: StoredAnswer | None = None) -> int:
        """See ports.Transaction."""
        tables = self._tables
        revision = 0
        if changes:
            tables.revision += 1
            revision = tables.revision
            self._put(changes, revision)
        if stored is not None:
            tables.answers[stored.key] = replace(stored, revision=revision)
        return revision

    def _put(self, changes: Changes, revision: int) -> None:
        tables = self._tables
        tables.functions.update({each.uid: replace(each, revision=revision) for each in changes.functions})
        tables.versions.update({each.uid: replace(each, revision=revision) for each in changes.versions})
        for uid in changes.dropped_versions:
            tables.versions.pop(uid, None)
        for uid in changes.purged_functions:
            self._purge(uid)
        touched = (
            *((ResourceType.FUNCTION, each.uid) for each in changes.functions),
            *((ResourceType.VERSION, each.uid) for each in changes.versions),
            *((ResourceType.PURGE, uid) for uid in changes.purged_functions),
            *((ResourceType.VERSION_PURGE, uid) for uid in changes.dropped_versions),
        )
        tables.events.extend(Event(revision, type_, uid) for type_, uid in sorted(touched))

    def _purge(self, uid: str) -> None:
        tables = self._tables
        tables.functions.pop(uid, None)
        tables.finalized.pop(uid, None)
        for version in tables.versions_of(uid):
            del tables.versions[version.uid]
