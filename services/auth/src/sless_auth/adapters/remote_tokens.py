"""Tokens of an issuer that publishes no keys: its API is asked whether it takes them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import aiohttp
from sless_platform.logging import get_logger

from sless_auth.domain.users import Verified, check_times
from sless_auth.errors import IssuerUnavailable, TokenInvalid

REFUSED_FOR: Final = timedelta(seconds=5)
"""The longest that a refusal is remembered: a token may begin to hold at any moment."""
_REMEMBERED: Final = 10_000
_LOOKED_AT_BYTES: Final = 1_024
# Three parts in base64url (RFC 7515 §3.1): nothing in it can be taken for the end of a header's line.
_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]*")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Judgement:
    """What the issuer said: the token's claims, or why it does not hold; and until when that is remembered."""

    claims: Mapping[str, Any] | None
    refusal: str
    until: datetime


class RemoteTokens:
    """Verifies tokens by a GET of `url` with the token as bearer: what the issuer takes holds.

    401 and 403 refuse the token. Everything else but 2xx says nothing about it, nor does a page of HTML: it is then
    unknown whether the token holds. The payload is believed only once the issuer has taken the token. An answer is
    remembered, by the token's SHA-256, for `remembered`, refusals for REFUSED_FOR at most; about one token one question
    is asked at a time. Redirects are not followed: the token is for this address alone.
    """

    def __init__(self, url: str, *, remembered: timedelta, timeout: timedelta, now: Callable[[], datetime]) -> None:
        self._url = url
        self._remembered = remembered
        self._refused = min(remembered, REFUSED_FOR)
        self._timeout = aiohttp.ClientTimeout(total=timeout.total_seconds())
        self._now = now
        self._session: aiohttp.ClientSession | None = None
        self._known: OrderedDict[bytes, _Judgement] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[_Judgement]] = {}

    async def close(self) -> None:
        """Ask no more, and close the connections to the issuer."""
        for task in self._asking.values():
            task.cancel()
        if self._session is not None:
            await self._session.close()

    async def verify(self, token: str, now: datetime) -> Verified:
        """See TokenVerifier."""
        form = _FORM.fullmatch(token)
        if form is None:
            raise TokenInvalid("the token is not a JWT")
        digest = hashlib.sha256(token.encode()).digest()
        judgement = self._known.get(digest)
        if judgement is None or now >= judgement.until:
            judgement = await self._asked(digest, token, form[1])
        if judgement.claims is None:
            raise TokenInvalid(judgement.refusal)
        check_times(judgement.claims, now.timestamp())
        return Verified(judgement.claims, judgement.until)

    async def _asked(self, digest: bytes, token: str, payload: str) -> _Judgement:
        """The answer of one question, which whoever asks meanwhile shares; it goes on when one of them goes away."""
        task = self._asking.get(digest)
        if task is None:
            task = asyncio.create_task(self._ask(digest, token, payload))
            self._asking[digest] = task
            task.add_done_callback(lambda ended: self._answered(digest, ended))
        return await asyncio.shield(task)

    def _answered(self, digest: bytes, ended: asyncio.Task[_Judgement]) -> None:
        self._asking.pop(digest, None)
        if not ended.cancelled():
            ended.exception()  # all who asked may have gone away

    async def _ask(self, digest: bytes, token: str, payload: str) -> _Judgement:
        asked = self._now()
        if await self._takes(token):
            claims, refusal = _claims(payload)
        else:
            claims, refusal = None, "the issuer does not take the token: get a new one"
        until = asked + (self._refused if claims is None else self._remembered)
        judgement = _Judgement(claims, refusal, until)
        self._known[digest] = judgement
        self._known.move_to_end(digest)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return judgement

    async def _takes(self, token: str) -> bool:
        """Raises IssuerUnavailable when the answer says nothing about the token."""
        try:
            return await self._answer(token)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # Its text may name the request's headers; its kind doesn't.
            log.warning("the token issuer can't be reached", url=self._url, error=type(error).__name__)
            raise IssuerUnavailable(f"the token issuer can't be reached at {self._url}; try again") from None

    async def _answer(self, token: str) -> bool:
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        async with self._opened().get(self._url, headers=headers, allow_redirects=False) as response:
            begin = await response.content.read(_LOOKED_AT_BYTES)
            if response.status in {401, 403}:
                return False
            if 200 <= response.status < 300 and not _is_page(response.content_type, begin):
                return True
            raise self._no_answer(response.status, page=_is_page(response.content_type, begin))

    def _no_answer(self, status: int, *, page: bool) -> IssuerUnavailable:
        log.warning("the token issuer's answer says nothing about the token", url=self._url, status=status, html=page)
        if status >= 500 or status == 429:
            return IssuerUnavailable(f"the token issuer at {self._url} answered {status}; try again")
        what = f"{status} with a page of HTML" if page else str(status)
        return IssuerUnavailable(
            f"the token issuer at {self._url} answered {what} where its API was expected: it is probably the wrong address"
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # No cookies: what one user's answer sets must not go along with another's token.
            self._session = aiohttp.ClientSession(timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar())
        return self._session


def _is_page(content_type: str, begin: bytes) -> bool:
    return content_type in {"text/html", "application/xhtml+xml"} or begin.lstrip().startswith(b"<")


def _claims(payload: str) -> tuple[Mapping[str, Any] | None, str]:
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        claims = None
    return (claims, "") if isinstance(claims, dict) else (None, "the token's payload is not a JSON object")
