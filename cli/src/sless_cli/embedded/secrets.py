"""Secrets of an embedded platform: made once, kept in one file (0600) of the data folder, handed on in memory only."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sless_cli.embedded.files import write_private
from sless_cli.errors import StartFailed


@dataclass(frozen=True, slots=True)
class Secrets:
    """identity_keys       service → Ed25519 private key, PKCS#8 PEM
    database_passwords  PostgreSQL role → password
    environment_key     32 bytes, base64: encrypts functions' secret variables at rest
    """

    identity_keys: Mapping[str, str] = field(repr=False)
    database_passwords: Mapping[str, str] = field(repr=False)
    environment_key: str = field(repr=False)

    def identity_public_keys(self) -> dict[str, str]:
        """Service → Ed25519 public key, PEM."""
        return {service: public_pem(key) for service, key in self.identity_keys.items()}


def load_or_create(path: Path, *, services: Iterable[str], roles: Iterable[str]) -> Secrets:
    """The secrets in this file; what is missing there is made and stored first. Raises StartFailed when it cannot be read."""
    stored = _read(path)
    keys = {**stored.get("identity_keys", {})}
    passwords = {**stored.get("database_passwords", {})}
    for service in services:
        keys.setdefault(service, new_ed25519_pem())
    for role in roles:
        passwords.setdefault(role, secrets.token_urlsafe(32))
    environment_key = stored.get("environment_key") or base64.b64encode(secrets.token_bytes(32)).decode()
    complete = {"identity_keys": keys, "database_passwords": passwords, "environment_key": environment_key}
    if complete != stored:
        write_private(path, json.dumps(complete, indent=1) + "\n")
    return Secrets(identity_keys=keys, database_passwords=passwords, environment_key=environment_key)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StartFailed(f"cannot read {path}: {error.strerror}; it must belong to you") from error
    try:
        stored = json.loads(text)
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise StartFailed(
            f"{path} is not what `sless up` wrote: restore it from a backup, or start with another --data"
        )
    return stored


def new_ed25519_pem() -> str:
    """A new private key, PKCS#8 PEM."""
    return (
        Ed25519PrivateKey.generate()
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        .decode()
    )


def public_pem(private_pem: str) -> str:
    """The public key, PEM, of a private key in PEM."""
    key = serialization.load_pem_private_key(private_pem.encode(), password=None)
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )
