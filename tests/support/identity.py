"""Identity keys for tests."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


@dataclass(frozen=True)
class IdentityKeys:
    """PEM texts by issuer."""

    private: dict[str, str]
    public: dict[str, str]


def new_identity_keys(*issuers: str) -> IdentityKeys:
    """A fresh Ed25519 pair for each issuer."""
    keys = {issuer: Ed25519PrivateKey.generate() for issuer in issuers}
    return IdentityKeys(
        {
            issuer: key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
            for issuer, key in keys.items()
        },
        {
            issuer: key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
            for issuer, key in keys.items()
        },
    )
