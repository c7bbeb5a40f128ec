"""Identity tokens: what holds, what does not, and what is remembered."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from sless_platform.errors import PermissionDenied, Unauthenticated
from sless_platform.identity import ANONYMOUS, IdentitySigner, IdentityVerifier, Principal, authorise

from tests.support.identity import new_identity_keys

NOW = datetime(2025, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEYS = new_identity_keys("auth", "store")
USER = Principal("alice", "space-1", frozenset({"admin", "member"}))
STORE = Principal("store", service="store")


def verifier(**options: Any) -> IdentityVerifier:
    return IdentityVerifier(KEYS.public, "mail", **options)


def token(principal: Principal = USER, issuer: str = "auth", audience: str = "mail", ttl: timedelta = MINUTE) -> str:
    return IdentitySigner(KEYS.private[issuer], issuer).sign(principal, audience, ttl, NOW)


def signed(issuer: str = "auth", headers: dict[str, Any] | None = None, **claims: Any) -> str:
    """A token with any claims, well signed; None leaves a claim out."""
    instant = int(NOW.timestamp())
    all_claims = {"iss": issuer, "aud": "mail", "sub": "alice", "namespace": "space-1", "roles": [], "iat": instant}
    all_claims |= {"exp": instant + 60} | claims
    present = {name: value for name, value in all_claims.items() if value is not None}
    return jwt.encode(present, KEYS.private[issuer], algorithm="EdDSA", headers={"kid": issuer} | (headers or {}))


@pytest.mark.parametrize(
    "principal",
    [USER, Principal("bob", "space-2"), Principal("bob", "space-3", credential="key-1")],
    ids=["admin", "plain", "by a key"],
)
def test_a_user_comes_out_as_he_went_in(principal: Principal) -> None:
    assert verifier().verify(token(principal), NOW) == principal


def test_a_service_speaks_for_itself() -> None:
    assert verifier().verify(token(STORE, "store"), NOW) == STORE


def test_the_issuer_of_users_may_speak_for_itself_too() -> None:
    assert verifier().verify(token(Principal("auth", service="auth"), "auth"), NOW) == Principal("auth", service="auth")


@pytest.mark.parametrize("principal", [USER, Principal("auth", service="auth")], ids=["a user", "another service"])
def test_another_issuer_never_speaks_for_anybody_else(principal: Principal) -> None:
    with pytest.raises(Unauthenticated, match="only for itself"):
        verifier().verify(token(principal, "store"), NOW)


def test_what_another_issuer_says_beside_its_name_counts_for_nothing() -> None:
    boastful = Principal("store", "space-1", frozenset({"admin"}))
    assert verifier().verify(token(boastful, "store"), NOW) == STORE


def test_which_issuer_speaks_for_users_is_the_deployments_choice() -> None:
    own = verifier(user_issuer="store")
    assert own.verify(token(USER, "store"), NOW) == USER
    with pytest.raises(Unauthenticated, match="only for itself"):
        own.verify(token(USER, "auth"), NOW)


def _unsigned(header: dict[str, Any]) -> str:
    parts = [json.dumps(header).encode(), json.dumps({"sub": "alice"}).encode(), b""]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


REFUSED = {
    "empty": ("", "not a signed token"),
    "nonsense": ("a.b.c", "not a signed token"),
    "not ascii": ("ключ.ключ.ключ", "not a signed token"),
    "too large": ("x" * 8193, "larger than 8192 bytes"),
    "unsigned": (_unsigned({"alg": "none", "kid": "auth"}), "must be signed with EdDSA"),
    "symmetric": (jwt.encode({"sub": "a"}, "k" * 32, algorithm="HS256", headers={"kid": "auth"}), "EdDSA"),
    "no key id": (_unsigned({"alg": "EdDSA"}), "key is not known"),
    "unknown key id": (_unsigned({"alg": "EdDSA", "kid": "mallory"}), "key is not known"),
    "key id is no text": (_unsigned({"alg": "EdDSA", "kid": ["auth"]}), "signed token|not known"),
    "no signature": (_unsigned({"alg": "EdDSA", "kid": "auth"}), "signature or form"),
    "another key": (token().rpartition(".")[0] + "." + token(STORE, "store").rpartition(".")[2], "signature or form"),
    "another audience": (token(audience="other"), "not meant for mail"),
    "several audiences without us": (signed(aud=["a", "b"]), "not meant for mail"),
    "another issuer than its key's": (signed(iss="store"), "signature or form"),
    "expired": (token(ttl=-MINUTE), "expired"),
    "expires now": (token(ttl=timedelta()), "expired"),
    "from the future": (signed(iat=int(NOW.timestamp()) + 60), "future"),
    "no expiry": (signed(exp=None), "signature or form"),
    "no subject": (signed(sub=None), "signature or form"),
    "empty subject": (signed(sub=""), "claims"),
    "no audience": (signed(aud=None), "signature or form|not meant"),
    "no issuer": (signed(iss=None), "signature or form"),
    "no issue time": (signed(iat=None), "signature or form"),
    "expiry is no number": (signed(exp="soon"), "times|signature or form"),
    "expiry beyond time": (signed(exp=10**30), "times|signature or form"),
    "namespace is no text": (signed(namespace=7), "claims"),
    "roles are no list": (signed(roles="admin"), "claims"),
    "credential is no text": (signed(credential=7), "claims"),
    "a service that is somebody else": (signed(service="store"), "only for itself"),
}


@pytest.mark.fault(21)
@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_hold_is_refused_with_one_sentence(case: str) -> None:
    text, words = REFUSED[case]
    with pytest.raises(Unauthenticated, match=words) as raised:
        verifier().verify(text, NOW)
    assert "\n" not in raised.value.message
    assert len(raised.value.message) < 200
    assert raised.value.__cause__ is None
    if len(text) > 20:
        assert text[-20:] not in raised.value.message


def test_a_token_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known, text = verifier(), token()
    assert known.verify(text, NOW) == USER
    monkeypatch.setattr(jwt, "decode", None)
    assert known.verify(text, NOW + timedelta(seconds=59)) == USER


def test_a_remembered_token_still_expires() -> None:
    known, text = verifier(), token()
    known.verify(text, NOW)
    with pytest.raises(Unauthenticated, match="expired"):
        known.verify(text, NOW + MINUTE)


def test_memory_is_bounded_and_keeps_what_is_used() -> None:
    known = verifier(memory=2)
    texts = [token(Principal(f"user-{number}", "space")) for number in range(4)]
    known.verify(texts[0], NOW)
    for text in texts[1:]:
        known.verify(text, NOW)
        known.verify(texts[0], NOW)
    assert len(known._verified) == 2
    assert known._verified.keys() >= {hashlib.sha256(texts[0].encode()).digest()}


def test_a_refusal_is_not_remembered() -> None:
    known = verifier()
    with pytest.raises(Unauthenticated):
        known.verify("nonsense", NOW)
    assert not known._verified


def test_a_token_names_its_key_and_its_times() -> None:
    text = token(ttl=timedelta(minutes=5))
    assert jwt.get_unverified_header(text) == {"alg": "EdDSA", "kid": "auth", "typ": "JWT"}
    claims = jwt.decode(text, options={"verify_signature": False})
    assert claims == {
        "iss": "auth",
        "aud": "mail",
        "sub": "alice",
        "namespace": "space-1",
        "roles": ["admin", "member"],
        "iat": int(NOW.timestamp()),
        "exp": int(NOW.timestamp()) + 300,
    }


def _pem(key: Any) -> tuple[str, str]:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_only_ed25519_keys_are_taken(kind: str) -> None:
    key = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())
    private, public = _pem(key)
    with pytest.raises(ValueError, match="identity key of auth must be Ed25519"):
        IdentitySigner(private, "auth")
    with pytest.raises(ValueError, match="identity key of auth must be Ed25519"):
        IdentityVerifier({"auth": public}, "mail")


@pytest.mark.parametrize(
    ("principal", "namespace", "allowed"),
    [
        (Principal("alice", "space-1"), "space-1", True),
        (Principal("alice", "space-1"), "space-2", False),
        (Principal("alice", ""), "", False),
        (Principal("root", "space-9", frozenset({"admin"})), "space-1", True),
        (Principal("store", service="store"), "space-1", True),
        (ANONYMOUS, "space-1", False),
        (ANONYMOUS, "", False),
    ],
)
def test_a_namespace_is_its_users_an_admins_and_the_services(
    principal: Principal, namespace: str, allowed: bool
) -> None:
    if allowed:
        authorise(principal, namespace)
    else:
        with pytest.raises(PermissionDenied, match="is not yours"):
            authorise(principal, namespace)


def test_a_services_roles_make_no_admin() -> None:
    assert not Principal("store", roles=frozenset({"admin"}), service="store").is_admin
