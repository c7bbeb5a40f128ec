"""Published keys: given in the settings, or fetched from the issuer and kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiohttp
import jwt
from sless_platform.logging import get_logger

from sless_auth.adapters.jwt_tokens import algorithms_of
from sless_auth.errors import IssuerUnavailable, TokenInvalid

_FRESH_SEC: Final = 300.0
_REFETCH_SEC: Final = 10.0
_FETCH_TIMEOUT_SEC: Final = 5.0
_MAX_DOCUMENT_BYTES: Final = 1024 * 1024

log = get_logger(__name__)


class KeyTable:
    """One state of a published key set."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """`document`: a JWKS (RFC 7517, section 5). Keys that can't verify a signature are left out. Raises ValueError."""
        keys = document.get("keys")
        if not isinstance(keys, list):
            raise ValueError('a JWKS must be an object with a list "keys"')  # noqa: TRY004
        usable = [parsed for parsed in map(_parse, keys) if parsed is not None]
        if not usable:
            raise ValueError("the JWKS has no key that can verify RS256, ES256 or EdDSA signatures")
        self._keys = usable

    def find(self, kid: str | None) -> jwt.PyJWK | None:
        """The key of that id; without an id the only key there is."""
        if kid is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.key_id == kid), None)


class StaticKeys:
    """Keys given once."""

    def __init__(self, jwks: str) -> None:
        """`jwks`: the JSON text of a JWKS. Raises ValueError."""
        self._table = KeyTable(json.loads(jwks))

    async def find(self, kid: str | None) -> jwt.PyJWK:
        """See KeySet."""
        return _found(self._table.find(kid), kid)


class FetchedKeys:
    """Keys behind a URL: fetched when first needed, again every five minutes, and once more when a token names
    an unknown one (a rotation), at most every ten seconds. While the issuer is away the keys known so far hold."""

    def __init__(self, url: str, *, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._url = url
        self._clock = clock
        self._table: KeyTable | None = None
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._lock = asyncio.Lock()

    async def find(self, kid: str | None) -> jwt.PyJWK:
        """See KeySet."""
        key = self._table.find(kid) if self._table is not None else None
        if key is None or self._clock() - self._fetched_at > _FRESH_SEC:
            await self._refresh()
            if self._table is None:
                raise IssuerUnavailable(f"the keys of the token issuer can't be fetched from {self._url}")
            key = self._table.find(kid)
        return _found(key, kid)

    async def _refresh(self) -> None:
        async with self._lock:
            if self._clock() - self._tried_at < (_REFETCH_SEC if self._table is not None else 1.0):
                return
            self._tried_at = self._clock()
            try:
                self._table = KeyTable(await self._fetch())
                self._fetched_at = self._clock()
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                log.warning(
                    "the issuer's keys can't be fetched",
                    url=self._url,
                    error=str(error) or type(error).__name__,
                )

    async def _fetch(self) -> Mapping[str, Any]:
        timeout = aiohttp.ClientTimeout(total=_FETCH_TIMEOUT_SEC)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self._url) as response:
            body = await response.content.read(_MAX_DOCUMENT_BYTES + 1)
            if response.status != 200:
                raise ValueError(f"the issuer answered {response.status}: probably the wrong address")
            if len(body) > _MAX_DOCUMENT_BYTES:
                raise ValueError(f"the issuer's document is larger than {_MAX_DOCUMENT_BYTES} bytes")
            if body.lstrip().startswith(b"<"):
                raise ValueError("the issuer answered HTML: probably the wrong address")
            document = json.loads(body)
            if not isinstance(document, dict):
                raise ValueError("the issuer's document is not a JSON object")  # noqa: TRY004
            return document


def _parse(key: object) -> jwt.PyJWK | None:
    if not isinstance(key, dict) or key.get("use", "sig") != "sig":
        return None
    try:
        parsed = jwt.PyJWK.from_dict(key, algorithm=_declared(key))
    except (jwt.PyJWTError, ValueError, KeyError, TypeError):
        return None
    return parsed if algorithms_of(parsed) else None


def _declared(key: Mapping[str, Any]) -> str | None:
    """PyJWT wants an algorithm for keys that name none; which one is used is decided from the key's type later."""
    return None if "alg" in key else {"RSA": "RS256"}.get(str(key.get("kty")))


def _found(key: jwt.PyJWK | None, kid: str | None) -> jwt.PyJWK:
    if key is None:
        named = "names no key (kid)" if kid is None else "names a key that the issuer does not publish"
        raise TokenInvalid(f"the token {named}")
    return key
