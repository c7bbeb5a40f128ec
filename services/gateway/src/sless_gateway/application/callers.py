"""Who is calling: bearer tokens verified once and remembered."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from sless_platform.errors import Kind, PlatformError

from sless_gateway.domain import Caller
from sless_gateway.errors import AuthenticationAway
from sless_gateway.ports import Authority

AUDIENCES: Final = ("auth", "registry", "builder", "invoker")
"""The services that are asked in a caller's name."""

_MARGIN: Final = timedelta(seconds=30)
_REMEMBERED_TOKENS: Final = 10_000


class Callers:
    """Callers by their tokens.

    A token is remembered, by its SHA-256, for as long as auth says, and at most until 30 s before the first of its
    identities ends, so that no request is under way with one that expires. One question a token at a time; refusals are not remembered.
    """

    def __init__(self, authority: Authority, *, now: Callable[[], datetime], memory: int = _REMEMBERED_TOKENS) -> None:
        self._authority = authority
        self._now = now
        self._memory = memory
        self._known: OrderedDict[bytes, Caller] = OrderedDict()
        self._asking: dict[bytes, asyncio.Future[Caller]] = {}

    async def authenticate(self, token: str) -> Caller:
        """The token's owner. Raises Unauthenticated; Unavailable when that can't be told now."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        while True:
            known = self._remembered(digest)
            if known is not None:
                return known
            asked = self._asking.get(digest)
            if asked is None:
                return await self._lead(digest, token)
            await asyncio.wait({asked})
            if not asked.cancelled():  # else: whoever asked went away, and somebody else must ask
                return asked.result()

    def _remembered(self, digest: bytes) -> Caller | None:
        known = self._known.get(digest)
        if known is None:
            return None
        if self._now() >= min(known.until - _MARGIN, known.remember_until):
            del self._known[digest]
            return None
        self._known.move_to_end(digest)
        return known

    async def _lead(self, digest: bytes, token: str) -> Caller:
        answer: asyncio.Future[Caller] = asyncio.get_running_loop().create_future()
        self._asking[digest] = answer
        try:
            caller = await self._ask(token)
        except PlatformError as error:
            answer.set_exception(error)
            answer.exception()  # nobody may have joined
            raise
        else:
            self._remember(digest, caller)
            answer.set_result(caller)
            return caller
        finally:
            del self._asking[digest]
            if not answer.done():
                answer.cancel()

    async def _ask(self, token: str) -> Caller:
        try:
            return await self._authority.authenticate(token, AUDIENCES)
        except PlatformError as error:
            if error.kind is Kind.UNAUTHENTICATED and error.reason == "TOKEN_INVALID":
                raise
            if error.kind is Kind.UNAVAILABLE and error.reason != Kind.UNAVAILABLE.value:
                raise
            # Anything else says nothing about the token: the gateway itself could not ask.
            raise AuthenticationAway("who is calling can't be verified right now; try again") from error

    def _remember(self, digest: bytes, caller: Caller) -> None:
        self._known[digest] = caller
        if len(self._known) > self._memory:
            self._known.popitem(last=False)
