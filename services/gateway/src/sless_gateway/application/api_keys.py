"""API keys: check the namespace, then ask their owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sless_platform.identity import authorise

from sless_gateway.application.conditions import Condition
from sless_gateway.domain import ApiKey, Caller, NewApiKey
from sless_gateway.ports import ApiKeyKeeper


class ApiKeys:
    """Every method raises PermissionDenied first when the namespace isn't the caller's. A key never changes: its etag is its id."""

    def __init__(self, keeper: ApiKeyKeeper, *, new_request_id: Callable[[], str]) -> None:
        self._keeper = keeper
        self._new_request_id = new_request_id

    async def create(
        self, *, caller: Caller, namespace: str, name: str, expires_at: datetime | None, condition: Condition
    ) -> NewApiKey:
        """A new key, with its secret. There is no state of it yet that a condition could name."""
        authorise(caller.principal, namespace)
        condition.check_absent()
        return await self._keeper.create(
            caller, namespace, name=name, expires_at=expires_at, request_id=self._new_request_id()
        )

    async def all(self, *, caller: Caller, namespace: str) -> Sequence[ApiKey]:
        """All keys of the namespace, newest first, without their secrets."""
        authorise(caller.principal, namespace)
        return await self._keeper.all(caller, namespace)

    async def delete(self, *, caller: Caller, namespace: str, key_id: str, condition: Condition) -> None:
        """Revoke a key."""
        authorise(caller.principal, namespace)
        condition.check(key_id)
        await self._keeper.delete(caller, namespace, key_id)
