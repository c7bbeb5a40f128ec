"""Tokens of the external issuer, verified by its published keys (RFC 7517, RFC 7519, RFC 8725)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol

import jwt

from sless_auth.domain.users import Verified, check_times
from sless_auth.errors import TokenInvalid

MIN_RSA_BITS: Final = 2048
_ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512"),
    "EC:P-256": ("ES256",),
    "EC:P-384": ("ES384",),
    "EC:P-521": ("ES512",),
    "OKP:Ed25519": ("EdDSA",),
}


class Key(Protocol):
    """A published key."""

    @property
    def parsed(self) -> jwt.PyJWK:
        """The key, parsed."""
        ...


class KeySet(Protocol):
    """The issuer's published keys."""

    async def find(self, kid: str | None) -> jwt.PyJWK:
        """The key of that id, or the only one when the token names none. Raises TokenInvalid, IssuerUnavailable."""
        ...


class JwtTokenVerifier:
    """Verifies JWTs. Which algorithm is allowed follows from the key alone, never from the token's own header."""

    def __init__(self, keys: KeySet, *, issuer: str, audience: str | None) -> None:
        """`issuer`: the `iss` that tokens must have. `audience`: the `aud` they must have; None when any will do."""
        self._keys = keys
        self._issuer = issuer
        self._audience = audience

    async def verify(self, token: str, now: datetime) -> Verified:
        """See TokenVerifier."""
        key = await self._keys.find(_kid_of(token))
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(algorithms_of(key)),
                issuer=self._issuer,
                audience=self._audience,
                options={
                    "require": ["exp", "iss", "sub"],
                    "verify_aud": self._audience is not None,
                    # Times are judged against the `now` that was given.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.InvalidTokenError as error:
            raise TokenInvalid(self._sentence(error)) from None
        check_times(claims, now.timestamp())
        return Verified(claims)

    def _sentence(self, error: jwt.InvalidTokenError) -> str:
        match error:
            case jwt.MissingRequiredClaimError():
                return f"the token lacks the claim {error.claim}"
            case jwt.InvalidIssuerError():
                return f"the token was not issued by {self._issuer}"
            case jwt.InvalidAudienceError():
                return f"the token is not meant for {self._audience}"
            case jwt.InvalidAlgorithmError():
                return "the token's algorithm is not the one of the key that it names"
            case jwt.InvalidSignatureError():
                return "the token's signature is wrong"
            case _:
                return "the token is not a valid JWT"


def algorithms_of(key: jwt.PyJWK) -> tuple[str, ...]:
    """The signature algorithms that a key may be used with: none for symmetric keys, unknown curves and short RSA keys."""
    if key.key_type == "RSA" and key.key.key_size < MIN_RSA_BITS:
        return ()
    curve = getattr(getattr(key.key, "curve", None), "name", "")
    names = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
    family = {"RSA": "RSA", "EC": f"EC:{names.get(curve, '')}", "OKP": f"OKP:{_okp_curve(key)}"}.get(
        key.key_type or "", ""
    )
    return _ALGORITHMS.get(family, ())


def _okp_curve(key: jwt.PyJWK) -> str:
    return "Ed25519" if "Ed25519" in type(key.key).__name__ else ""


def _kid_of(token: str) -> str | None:
    try:
        header = jwt.get_unverified_header(token)
    except jwt.InvalidTokenError:
        raise TokenInvalid("the token is not a JWT") from None
    kid = header.get("kid")
    if kid is not None and (not isinstance(kid, str) or len(kid) > 512):
        raise TokenInvalid("the token's kid is not a text of at most 512 characters")
    return kid
