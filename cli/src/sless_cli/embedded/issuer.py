"""The embedded issuer: signs users' tokens with the data folder's key. Only the platform of that folder trusts it."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import datetime, timedelta
from pathlib import Path

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sless_cli.embedded.files import write_private
from sless_cli.embedded.secrets import new_ed25519_pem
from sless_cli.errors import CliError

ISSUER = "sless-embedded"
DEFAULT_SUB = "dev"
CONTEXT_TTL = timedelta(days=30)
_ALGORITHM = "EdDSA"


class EmbeddedIssuer:
    """Makes tokens, and the JWKS (RFC 7517) by which they are verified."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self._x = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    @property
    def key_id(self) -> str:
        """The key's thumbprint (RFC 7638 with RFC 8037's members)."""
        members = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": self._x}, separators=(",", ":"))
        return base64.urlsafe_b64encode(hashlib.sha256(members.encode()).digest()).rstrip(b"=").decode()

    def jwks(self) -> str:
        """The public key as a JSON Web Key Set."""
        key = {"kty": "OKP", "crv": "Ed25519", "x": self._x, "kid": self.key_id, "alg": _ALGORITHM, "use": "sig"}
        return json.dumps({"keys": [key]})

    def token(self, sub: str, ttl: timedelta, now: datetime) -> str:
        """A token that says `sub` from `now` for `ttl`."""
        claims = {"iss": ISSUER, "sub": sub, "iat": int(now.timestamp()), "exp": int((now + ttl).timestamp())}
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM, headers={"kid": self.key_id})


def load_or_create(path: Path) -> EmbeddedIssuer:
    """The issuer of a data folder; its key is made when there is none. Raises CliError when it cannot be used."""
    if not path.exists():
        write_private(path, new_ed25519_pem())
    return load(path)


def load(path: Path) -> EmbeddedIssuer:
    """The issuer of a data folder. Raises CliError when its key is not there or cannot be used."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError:
        raise CliError(
            f"{path} is not there: start the platform first with `sless up`, or name its folder by --data"
        ) from None
    except OSError as error:
        raise CliError(
            f"cannot read {path}: {error.strerror}; only the user that runs the platform can make tokens"
        ) from error
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise CliError(
            f"{path} is no Ed25519 key: restore it from a backup, or remove it to have a new one at the next start"
        )
    return EmbeddedIssuer(key)
