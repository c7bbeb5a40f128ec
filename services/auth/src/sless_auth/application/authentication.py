"""Authentication: from a bearer token, the issuer's or an API key, to a principal and its internal identities."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from sless_auth.application.key_tokens import KeyTokens
from sless_auth.domain.api_keys import is_api_key
from sless_auth.domain.users import MAX_TOKEN_BYTES, AdminRule, Caller, Identity, caller_of, identity_expiry
from sless_auth.errors import TokenInvalid
from sless_auth.ports import IdentityMint, TokenVerifier

_REMEMBERED_TOKENS: Final = 10_000


class Authentication:
    """Verifies tokens and mints identities. A token that held is remembered by its digest for as long as it may be."""

    def __init__(
        self,
        *,
        tokens: TokenVerifier,
        keys: KeyTokens,
        mint: IdentityMint,
        admin: AdminRule,
        now: Callable[[], datetime],
    ) -> None:
        self._tokens = tokens
        self._keys = keys
        self._mint = mint
        self._admin = admin
        self._now = now
        self._known: OrderedDict[bytes, Caller] = OrderedDict()

    async def authenticate(self, *, token: str) -> Caller:
        """Who presented the token. Raises TokenInvalid, IssuerUnavailable, ApiKeysUnavailable."""
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenInvalid(f"the token is larger than {MAX_TOKEN_BYTES} bytes")
        if not token.isascii():
            raise TokenInvalid("the token is not a JWT: it has characters outside ASCII")
        if is_api_key(token):
            return await self._keys.verify(token=token)
        digest = hashlib.sha256(token.encode()).digest()
        now = self._now()
        known = self._known.get(digest)
        if known is not None and known.known(now):
            return known
        caller = caller_of(await self._tokens.verify(token, now), self._admin)
        self._remember(digest, caller)
        return caller

    def identities(self, *, caller: Caller, audiences: Sequence[str]) -> list[Identity]:
        """One identity of the caller for each audience, in order."""
        now = self._now()
        expires_at = identity_expiry(caller, now)
        return [
            Identity(
                audience,
                self._mint.mint(caller.principal, audience=audience, expires_at=expires_at, now=now),
                expires_at,
            )
            for audience in audiences
        ]

    def _remember(self, digest: bytes, caller: Caller) -> None:
        self._known[digest] = caller
        self._known.move_to_end(digest)
        if len(self._known) > _REMEMBERED_TOKENS:
            self._known.popitem(last=False)
