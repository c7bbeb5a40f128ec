"""API keys of a namespace: made, listed, revoked."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sless_platform.errors import PermissionDenied
from sless_platform.identity import Principal, authorise

from sless_auth.application.key_tokens import KeyTokens
from sless_auth.domain import api_keys
from sless_auth.domain.api_keys import ApiKey, Letters, Position, StoredKey
from sless_auth.errors import ApiKeyNotFound, InvalidField, PageTokenInvalid
from sless_auth.ports import ApiKeyStore

DEFAULT_PAGE_SIZE: Final = 100
MAX_PAGE_SIZE: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list; `next_token` "" on the last."""

    keys: Sequence[ApiKey]
    next_token: str


class ApiKeys:
    """Every method first checks that the principal may act in the namespace (PermissionDenied).

    Who presents a key may neither make nor revoke keys: one that leaks must not outlive its being revoked, nor lock its
    owner's other programs out.
    """

    def __init__(
        self,
        store: ApiKeyStore,
        tokens: KeyTokens,
        *,
        limit: int,
        letters: Letters,
        now: Callable[[], datetime],
    ) -> None:
        """`limit`: the most keys of a namespace."""
        self._store = store
        self._tokens = tokens
        self._limit = limit
        self._letters = letters
        self._now = now

    async def create(
        self, *, principal: Principal, namespace: str, name: str, expires_at: datetime | None, request_id: str
    ) -> tuple[ApiKey, str]:
        """A new key, and its token, which is not kept. Raises InvalidField, LimitReached, RequestIdReused."""
        authorise(principal, namespace)
        _check_own_token(principal)
        now = self._now()
        key = ApiKey(
            id=api_keys.new_id(self._letters),
            namespace=api_keys.checked_namespace(namespace),
            name=api_keys.checked_name(name),
            created_by=principal.subject,
            created_at=now,
            expires_at=api_keys.checked_expiry(expires_at, now),
        )
        token = api_keys.new_token(key.id, self._letters)
        stored = StoredKey(key, api_keys.digest_of(token))
        await self._store.add(stored, request_id=_checked_request_id(request_id), limit=self._limit, now=now)
        return key, token

    async def page(self, *, principal: Principal, namespace: str, size: int, token: str) -> Page:
        """A page of the namespace's keys, newest first. Raises InvalidField, PageTokenInvalid."""
        authorise(principal, namespace)
        size = _checked_size(size)
        api_keys.checked_namespace(namespace)
        found = await self._store.page(namespace, after=_position(namespace, token), limit=size + 1)
        keys = found[:size]
        return Page(keys, _page_token(keys[-1]) if len(found) > size else "")

    async def delete(self, *, principal: Principal, namespace: str, key_id: str) -> None:
        """Revoke a key. Raises ApiKeyNotFound, InvalidField."""
        authorise(principal, namespace)
        _check_own_token(principal)
        api_keys.checked_namespace(namespace)
        if not (api_keys.may_be_id(key_id) and await self._store.remove(namespace, key_id)):
            raise ApiKeyNotFound(f"API key not found: {key_id[:80]}")
        self._tokens.forget(key_id)

    async def delete_all(self, *, principal: Principal, namespace: str) -> None:
        """Revoke all keys of a namespace; there may be none. Raises InvalidField."""
        authorise(principal, namespace)
        api_keys.checked_namespace(namespace)
        for key_id in await self._store.remove_all(namespace):
            self._tokens.forget(key_id)


def _check_own_token(principal: Principal) -> None:
    if principal.credential:
        raise PermissionDenied("API keys can't be made or revoked with an API key: use a token of your own")


def _checked_request_id(request_id: str) -> str:
    try:
        return str(uuid.UUID(request_id)) if request_id else ""
    except ValueError:
        raise InvalidField(f"request_id must be a UUID, not {request_id[:64]!r}", field="request_id") from None


def _checked_size(size: int) -> int:
    if not 0 <= size <= MAX_PAGE_SIZE:
        raise InvalidField(
            f"page_size must be from 1 to {MAX_PAGE_SIZE}, or 0 for {DEFAULT_PAGE_SIZE}, not {size}", field="page_size"
        )
    return size or DEFAULT_PAGE_SIZE


def _page_token(last: ApiKey) -> str:
    """Where the list goes on. Not signed: it can name nothing but a place in a list that its reader may read whole."""
    microseconds = (last.created_at - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(f"{last.namespace} {microseconds} {last.id}".encode()).decode()


def _position(namespace: str, token: str) -> Position | None:
    if not token:
        return None
    try:
        of, microseconds, key_id = base64.b64decode(token, altchars=b"-_", validate=True).decode("ascii").split(" ")
        created_at = _EPOCH + timedelta(microseconds=int(microseconds))
    except (binascii.Error, ValueError, OverflowError):
        raise PageTokenInvalid from None
    if of != namespace or not api_keys.may_be_id(key_id):
        raise PageTokenInvalid
    return Position(created_at, key_id)
