"""Bearer tokens of users, verified by asking whoever can, once a token."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sless_platform.errors import Unauthenticated
from sless_platform.identity import MAX_TOKEN_BYTES, Principal

Bearer = Callable[[str], Awaitable[Principal]]
"""What RpcServer takes: gives the principal of a bearer token, raises Unauthenticated."""


@dataclass(frozen=True)
class VerifiedBearer:
    """The answer of whoever verified a token: who it is, and until when that may be believed without asking again (aware, UTC)."""

    principal: Principal
    expires_at: datetime


def _utc_now() -> datetime:
    return datetime.now(UTC)


class AuthBearer:
    """A Bearer that asks `ask` about each token it does not know and remembers the answer, by the token's SHA-256, until it expires.

    Refusals are not remembered: `ask` raises Unauthenticated, or Unavailable when it cannot be reached.
    """

    def __init__(
        self,
        ask: Callable[[str], Awaitable[VerifiedBearer]],
        *,
        memory: int = 10_000,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """`memory`: how many tokens are remembered; the least recently used goes first."""
        self._ask = ask
        self._memory = memory
        self._now = now
        self._verified: OrderedDict[bytes, VerifiedBearer] = OrderedDict()

    async def __call__(self, token: str) -> Principal:
        """Who the token belongs to. Raises Unauthenticated."""
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthenticated(f"the bearer token is larger than {MAX_TOKEN_BYTES} bytes")
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._verified.get(digest)
        if known is None or known.expires_at <= self._now():
            known = await self._ask(token)
            self._verified[digest] = known
        self._verified.move_to_end(digest)
        if len(self._verified) > self._memory:
            self._verified.popitem(last=False)
        return known.principal
