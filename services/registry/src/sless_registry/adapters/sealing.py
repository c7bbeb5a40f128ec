"""Secret values sealed with AES-256-GCM, shown as an HMAC-SHA256, by keys derived from the platform's key (HKDF, RFC 5869)."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sless_platform.errors import Internal

from sless_registry.domain.resources import Secret

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class _Key:
    """One platform key's derived keys. A plain SHA-256 of a short secret could be found by trying, an HMAC cannot."""

    def __init__(self, key: bytes) -> None:
        self.id = _derived(key, b"id")[:8].hex()
        self.cipher = AESGCM(_derived(key, b"seal"))
        self._digest = _derived(key, b"digest")

    def digest(self, purpose: bytes, content: bytes) -> bytes:
        return hmac.digest(self._digest, purpose + b"\0" + content, hashlib.sha256)


class AesGcmSealer:
    """See ports.Sealer. The first key seals; the others only open what they once sealed (rotation)."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys`: the present one, then older ones, 32 bytes each."""
        self._current = _Key(keys[0])
        self._keys = {key.id: key for key in map(_Key, reversed(keys))}

    def seal(self, value: str, *, context: str) -> Secret:
        """See ports.Sealer."""
        key, nonce = self._current, os.urandom(_NONCE_BYTES)
        sealed = nonce + key.cipher.encrypt(nonce, value.encode(), context.encode())
        return Secret(_shown(key, value, context), key.id, sealed)

    def open(self, secret: Secret, *, context: str) -> str:
        """See ports.Sealer."""
        key = self._keys.get(secret.key_id)
        if key is None:
            raise Internal(
                f"a secret was sealed with key {secret.key_id}, which is not among SLESS_SECRET_ENV_OLD_KEYS"
            )
        nonce, sealed = secret.sealed[:_NONCE_BYTES], secret.sealed[_NONCE_BYTES:]
        try:
            return key.cipher.decrypt(nonce, sealed, context.encode()).decode()
        except InvalidTag:
            raise Internal(f"a stored secret of {context} was changed outside of the registry") from None

    def matches(self, secret: Secret, value: str, *, context: str) -> bool:
        """See ports.Sealer."""
        key = self._keys.get(secret.key_id)
        return key is not None and hmac.compare_digest(secret.digest, _shown(key, value, context))

    def fingerprint(self, content: bytes) -> bytes:
        """See ports.Sealer."""
        return self._current.digest(b"fingerprint", content)


def _shown(key: _Key, value: str, context: str) -> str:
    """What is shown of a value. The context is part of it: nobody can try values in a function of their own."""
    return key.digest(b"secret\0" + context.encode(), value.encode()).hex()


def _derived(key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"sless-registry " + purpose).derive(key)
