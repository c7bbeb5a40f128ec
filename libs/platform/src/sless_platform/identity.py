"""Who is calling: the principal, and the short-lived signed token in which it travels between services.

The token is a JWT signed with EdDSA (RFC 8037). Its `kid` and `iss` name the signer. One issuer may speak for users; every other
issuer speaks only for itself, so a service's stolen key can never act for a user.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from sless_platform.errors import PermissionDenied, Unauthenticated

ALGORITHM = "EdDSA"
MAX_TOKEN_BYTES = 8 * 1024
ADMIN_ROLE = "admin"
_CLOCK_SKEW = timedelta(seconds=5)
_REQUIRED = ("exp", "iat", "iss", "aud", "sub")


@dataclass(frozen=True)
class Principal:
    """Who is calling.

    subject    the user's `sub`, or the service's name.
    namespace  the one that the user, or the key they presented, is for; "" for services.
    roles      "admin" may act in every namespace.
    service    the calling service's name when it speaks for itself; None for a user.
    credential  the id of the key that a user's program presented; "" when the user's own token was presented.
    """

    subject: str
    namespace: str = ""
    roles: frozenset[str] = frozenset()
    service: str | None = None
    credential: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether this user may act in every namespace."""
        return self.service is None and ADMIN_ROLE in self.roles

    @property
    def is_anonymous(self) -> bool:
        """Whether nobody is known to be calling."""
        return not self.subject


ANONYMOUS = Principal(subject="")


def authorise(principal: Principal, namespace: str) -> None:
    """The check of a namespace, the first thing that application code does with one.

    Passes for the namespace's own user, an admin and a service that speaks for itself. Raises PermissionDenied.
    """
    if principal.service is not None or principal.is_admin:
        return
    if not namespace or principal.namespace != namespace:
        raise PermissionDenied(f"namespace {namespace!r} is not yours")


class IdentitySigner:
    """Signs identity tokens as one issuer."""

    def __init__(self, key_pem: str, issuer: str) -> None:
        """`key_pem`: an Ed25519 private key, PKCS#8 PEM. Raises ValueError for anything else."""
        key = load_pem_private_key(key_pem.encode(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"the identity key of {issuer} must be Ed25519, not {type(key).__name__}")  # noqa: TRY004
        self._key = key
        self.issuer = issuer

    def sign(self, principal: Principal, audience: str, ttl: timedelta, now: datetime) -> str:
        """A token that says, to `audience` alone and until now + ttl, that `principal` is calling."""
        claims = {
            "iss": self.issuer,
            "aud": audience,
            "sub": principal.subject,
            "namespace": principal.namespace,
            "roles": sorted(principal.roles),
            "iat": int(now.timestamp()),
            "exp": int((now + ttl).timestamp()),
        }
        if principal.service is not None:
            claims["service"] = principal.service
        if principal.credential:
            claims["credential"] = principal.credential
        return jwt.encode(claims, self._key, algorithm=ALGORITHM, headers={"kid": self.issuer})


class IdentityVerifier:
    """Verifies identity tokens that are meant for one audience.

    A token that held is remembered by its SHA-256 until it expires (at most `memory` tokens), because a signature costs 0.2 ms.
    """

    def __init__(
        self, public_keys: Mapping[str, str], audience: str, *, user_issuer: str = "auth", memory: int = 10_000
    ) -> None:
        """`public_keys`: issuer → Ed25519 public key, PEM. Only `user_issuer` may speak for users. Raises ValueError."""
        self._keys = {issuer: _public_key(issuer, pem) for issuer, pem in public_keys.items()}
        self._audience = audience
        self._user_issuer = user_issuer
        self._memory = memory
        self._verified: OrderedDict[bytes, tuple[Principal, datetime]] = OrderedDict()

    def verify(self, token: str, now: datetime) -> Principal:
        """Who the token says is calling. Raises Unauthenticated with one sentence, never with a part of the token."""
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthenticated(f"the identity token is larger than {MAX_TOKEN_BYTES} bytes")
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._verified.get(digest)
        if known is None:
            known = self._check(token, now)
            self._remember(digest, known)
        self._verified.move_to_end(digest)
        principal, expires = known
        if now >= expires:
            self._verified.pop(digest, None)
            raise Unauthenticated("the identity token has expired")
        return principal

    def _remember(self, digest: bytes, known: tuple[Principal, datetime]) -> None:
        self._verified[digest] = known
        if len(self._verified) > self._memory:
            self._verified.popitem(last=False)

    def _check(self, token: str, now: datetime) -> tuple[Principal, datetime]:
        issuer = self._issuer_of(token)
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._keys[issuer],
                algorithms=[ALGORITHM],
                audience=self._audience,
                issuer=issuer,
                # Times are judged below, against the `now` that was given.
                options={"require": list(_REQUIRED), "verify_exp": False, "verify_iat": False, "verify_nbf": False},
            )
        except jwt.InvalidAudienceError:
            raise Unauthenticated(f"the identity token is not meant for {self._audience}") from None
        except jwt.PyJWTError:
            raise Unauthenticated("the identity token's signature or form is not valid") from None
        return self._principal(claims, issuer), _expiry(claims, now)

    def _issuer_of(self, token: str) -> str:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise Unauthenticated("the identity token is not a signed token") from None
        if header.get("alg") != ALGORITHM:
            raise Unauthenticated(f"the identity token must be signed with {ALGORITHM}")
        issuer = header.get("kid")
        if not isinstance(issuer, str) or issuer not in self._keys:
            raise Unauthenticated("the identity token's key is not known here")
        return issuer

    def _principal(self, claims: Mapping[str, Any], issuer: str) -> Principal:
        subject, namespace, roles = claims["sub"], claims.get("namespace", ""), claims.get("roles", [])
        credential = claims.get("credential", "")
        texts = all(isinstance(value, str) for value in (subject, namespace, credential))
        if not (texts and subject and isinstance(roles, list)):
            raise Unauthenticated("the identity token's claims are not of the right form")
        if issuer == self._user_issuer and "service" not in claims:
            return Principal(subject, namespace, frozenset(str(role) for role in roles), credential=credential)
        if subject != issuer or claims.get("service", issuer) != issuer:
            raise Unauthenticated(f"the identity token's issuer {issuer!r} may speak only for itself")
        return Principal(subject=issuer, service=issuer)


def _expiry(claims: Mapping[str, Any], now: datetime) -> datetime:
    try:
        expires = datetime.fromtimestamp(claims["exp"], UTC)
        issued = datetime.fromtimestamp(claims["iat"], UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise Unauthenticated("the identity token's times are not of the right form") from None
    if issued > now + _CLOCK_SKEW:
        raise Unauthenticated("the identity token was issued in the future: compare the clocks")
    return expires


def _public_key(issuer: str, pem: str) -> Ed25519PublicKey:
    key = load_pem_public_key(pem.encode())
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"the public identity key of {issuer} must be Ed25519, not {type(key).__name__}")  # noqa: TRY004
    return key
