"""Users' tokens: what holds, and everything that must not (fault 21)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sless_auth.adapters.identity_mint import SigningMint
from sless_auth.adapters.jwks import StaticKeys
from sless_auth.adapters.jwt_tokens import JwtTokenVerifier
from sless_auth.adapters.memory_keys import MemoryKeys
from sless_auth.application.authentication import Authentication
from sless_auth.application.key_tokens import KeyTokens
from sless_auth.domain.users import AdminRule
from sless_auth.errors import TokenInvalid
from sless_contracts.catalog import namespace_of
from sless_platform.identity import IdentitySigner, IdentityVerifier

from tests.support.identity import new_identity_keys

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ISSUER = "https://issuer.example"
AUDIENCE = "sless"

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK_RSA = rsa.generate_private_key(public_exponent=65537, key_size=1024)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _jwk(private: Any, kid: str, algorithm: type[Any]) -> dict[str, Any]:
    return {**algorithm.to_jwk(private.public_key(), as_dict=True), "kid": kid, "use": "sig"}


JWKS = {
    "keys": [
        {**_jwk(RSA, "rsa", jwt.algorithms.RSAAlgorithm), "alg": "RS256"},
        _jwk(EC, "ec", jwt.algorithms.ECAlgorithm),
        _jwk(ED, "ed", jwt.algorithms.OKPAlgorithm),
        {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(b"x" * 32).decode().rstrip("=")},
        _jwk(WEAK_RSA, "weak", jwt.algorithms.RSAAlgorithm),
        {"kty": "RSA", "kid": "broken"},
    ]
}


def _claims(**changes: Any) -> dict[str, Any]:
    claims = {
        "sub": "alice",
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": (NOW + timedelta(hours=1)).timestamp(),
        "nbf": NOW.timestamp(),
        **changes,
    }
    return {name: value for name, value in claims.items() if value is not None}


def _token(key: Any = ED, algorithm: str = "EdDSA", kid: str | None = "ed", **changes: Any) -> str:
    headers = {"kid": kid} if kid is not None else {}
    return jwt.encode(_claims(**changes), key, algorithm=algorithm, headers=headers)


class Clock:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def _authentication(
    clock: Clock | None = None, jwks: dict[str, Any] | None = None, admin: AdminRule | None = None
) -> Authentication:
    keys = new_identity_keys("auth")
    return Authentication(
        tokens=JwtTokenVerifier(StaticKeys(json.dumps(jwks or JWKS)), issuer=ISSUER, audience=AUDIENCE),
        keys=KeyTokens(MemoryKeys(), now=clock or Clock()),
        mint=SigningMint(IdentitySigner(keys.private["auth"], "auth")),
        admin=admin or AdminRule(),
        now=clock or Clock(),
    )


@pytest.mark.parametrize(("key", "algorithm", "kid"), [(RSA, "RS256", "rsa"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed")])
async def test_a_token_signed_by_a_published_key_names_its_user(key: Any, algorithm: str, kid: str) -> None:
    caller = await _authentication().authenticate(token=_token(key, algorithm, kid))

    assert caller.principal.subject == "alice"
    assert caller.principal.namespace == namespace_of("alice")
    assert caller.principal.roles == frozenset()
    assert caller.expires_at == NOW + timedelta(hours=1)


def _segment(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _unsigned() -> str:
    return f"{_segment({'alg': 'none', 'kid': 'ed'})}.{_segment(_claims())}."


def _hmac_with(secret: bytes, kid: str) -> str:
    signed = f"{_segment({'alg': 'HS256', 'kid': kid})}.{_segment(_claims())}"
    signature = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def _public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def _tampered() -> str:
    head, _, signature = _token().split(".")
    return f"{head}.{_segment(_claims(sub='bob'))}.{signature}"


FORGED: dict[str, Callable[[], str]] = {
    "empty": lambda: "",
    "not a token": lambda: "hello",
    "two dots": lambda: "..",
    "not json": lambda: "e30.e30.e30",
    "unsigned": _unsigned,
    "hmac by the public rsa key": lambda: _hmac_with(_public_pem(RSA), "rsa"),
    "hmac by the public ed key": lambda: _hmac_with(_public_pem(ED), "ed"),
    "hmac by a published shared key": lambda: _hmac_with(b"x" * 32, "shared"),
    "signed by a stranger": lambda: _token(STRANGER, "RS256", "rsa"),
    "signed by another published key": lambda: _token(EC, "ES256", "ed"),
    "unknown kid": lambda: _token(kid="unknown"),
    "no kid though there are several keys": lambda: _token(kid=None),
    "a weak key": lambda: _token(WEAK_RSA, "RS256", "weak"),
    "a broken key": lambda: _token(RSA, "RS256", "broken"),
    "changed after it was signed": _tampered,
    "another issuer": lambda: _token(iss="https://evil.example"),
    "no issuer": lambda: _token(iss=None),
    "another audience": lambda: _token(aud="other"),
    "no audience": lambda: _token(aud=None),
    "expired": lambda: _token(exp=(NOW - timedelta(minutes=1)).timestamp()),
    "never expires": lambda: _token(exp=None),
    "expiry that is no time": lambda: _token(exp="soon"),
    "expiry beyond time": lambda: _token(exp=1e300),
    "not valid yet": lambda: _token(nbf=(NOW + timedelta(minutes=1)).timestamp()),
    "no sub": lambda: _token(sub=None),
    "empty sub": lambda: _token(sub=""),
    "long sub": lambda: _token(sub="x" * 256),
    "sub with a line break": lambda: _token(sub="alice\nbob"),
    "huge": lambda: _token(extra="x" * 17_000),
    "not even text": lambda: "\udcff.\udcff.\udcff",
}


@pytest.mark.fault(21)
@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize("case", FORGED)
async def test_a_token_that_proves_nothing_is_refused(case: str) -> None:
    token = FORGED[case]()

    with pytest.raises(TokenInvalid) as refusal:
        await _authentication().authenticate(token=token)

    assert not token or token not in refusal.value.message
    assert refusal.value.reason == "TOKEN_INVALID"


async def test_a_remembered_token_ends_when_it_says() -> None:
    clock = Clock()
    authentication = _authentication(clock)
    token = _token()
    await authentication.authenticate(token=token)

    clock.now = NOW + timedelta(hours=1, minutes=1)

    with pytest.raises(TokenInvalid, match="expired"):
        await authentication.authenticate(token=token)


async def test_a_single_key_needs_no_kid() -> None:
    authentication = _authentication(jwks={"keys": [JWKS["keys"][2]]})

    caller = await authentication.authenticate(token=_token(kid=None))

    assert caller.principal.subject == "alice"


@pytest.mark.parametrize(
    ("claim", "admitted"),
    [
        ("operator", True),
        (["reader", "operator"], True),
        ("operators", False),
        (["x"], False),
        (True, False),
        (None, False),
    ],
)
async def test_the_admin_is_who_has_the_value_in_the_claim(claim: object, admitted: bool) -> None:
    authentication = _authentication(admin=AdminRule("groups", "operator"))

    caller = await authentication.authenticate(token=_token(groups=claim))

    assert caller.principal.is_admin is admitted


async def test_nobody_is_an_admin_when_no_claim_is_named() -> None:
    caller = await _authentication().authenticate(token=_token(**{"groups": "", "": ""}))

    assert not caller.principal.is_admin


async def test_identities_are_for_one_audience_and_end_with_the_token() -> None:
    keys = new_identity_keys("auth")
    authentication = Authentication(
        tokens=JwtTokenVerifier(StaticKeys(json.dumps(JWKS)), issuer=ISSUER, audience=AUDIENCE),
        keys=KeyTokens(MemoryKeys(), now=Clock()),
        mint=SigningMint(IdentitySigner(keys.private["auth"], "auth")),
        admin=AdminRule(),
        now=Clock(),
    )
    caller = await authentication.authenticate(token=_token(exp=(NOW + timedelta(minutes=2)).timestamp()))

    first, second = authentication.identities(caller=caller, audiences=["registry", "invoker"])

    assert (first.audience, second.audience) == ("registry", "invoker")
    assert first.expires_at == second.expires_at == NOW + timedelta(minutes=2)
    assert IdentityVerifier(keys.public, "registry").verify(first.token, NOW) == caller.principal
    with pytest.raises(Exception, match="registry"):
        IdentityVerifier(keys.public, "registry").verify(second.token, NOW)
