"""API keys in memory, for tests and for trying things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sless_auth.domain.api_keys import ApiKey, Position, StoredKey
from sless_auth.errors import LimitReached, RequestIdReused


class MemoryKeys:
    """The port ApiKeyStore."""

    def __init__(self) -> None:
        self._keys: dict[str, StoredKey] = {}
        self._requests: dict[str, tuple[str, str]] = {}

    async def add(self, stored: StoredKey, *, request_id: str, limit: int, now: datetime) -> None:
        """See ApiKeyStore."""
        key = stored.key
        request = (key.created_by, request_id)
        if request_id and any(self._requests.get(known) == request for known in self._keys):
            raise RequestIdReused(f"request_id {request_id} has made an API key already: its secret is shown once")
        if len(self._of(key.namespace)) >= limit:
            for other in self._of(key.namespace):
                if other.expired(now):
                    del self._keys[other.id]
        if len(self._of(key.namespace)) >= limit:
            raise LimitReached(f"namespace {key.namespace!r} has {limit} API keys, as many as it may: revoke one first")
        self._keys[key.id] = stored
        self._requests[key.id] = request

    async def find(self, key_id: str) -> StoredKey | None:
        """See ApiKeyStore."""
        return self._keys.get(key_id)

    async def page(self, namespace: str, *, after: Position | None, limit: int) -> Sequence[ApiKey]:
        """See ApiKeyStore."""
        newest_first = sorted(self._of(namespace), key=lambda key: (key.created_at, key.id), reverse=True)
        rest = [key for key in newest_first if after is None or (key.created_at, key.id) < (after.created_at, after.id)]
        return rest[:limit]

    async def remove(self, namespace: str, key_id: str) -> bool:
        """See ApiKeyStore."""
        found = self._keys.get(key_id)
        if found is None or found.key.namespace != namespace:
            return False
        del self._keys[key_id]
        return True

    async def remove_all(self, namespace: str) -> Sequence[str]:
        """See ApiKeyStore."""
        gone = [key.id for key in self._of(namespace)]
        for key_id in gone:
            del self._keys[key_id]
        return gone

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """See ApiKeyStore."""
        for key_id, at in uses.items():
            stored = self._keys.get(key_id)
            if stored is not None and (stored.key.last_used_at is None or stored.key.last_used_at < at):
                self._keys[key_id] = replace(stored, key=replace(stored.key, last_used_at=at))

    def _of(self, namespace: str) -> list[ApiKey]:
        return [stored.key for stored in self._keys.values() if stored.key.namespace == namespace]
