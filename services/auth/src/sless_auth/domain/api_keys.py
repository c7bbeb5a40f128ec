"""API keys: what they are, and the form of their tokens. Pure.

A token is `sless_`, the key's id, `_`, 30 random letters and 6 that follow from all before them: those are there so that
programs which look for leaked secrets, and typing errors, are told from keys without asking anybody (the form is GitHub's,
github.blog, "Behind GitHub's new authentication token formats").
"""

from __future__ import annotations

import hashlib
import re
import string
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sless_contracts import catalog, limits

from sless_auth.errors import InvalidField

PREFIX: Final = "sless_"
TRUSTED_FOR: Final = timedelta(seconds=2)
"""How long a key that was read is believed in, here and, counted anew, by whoever asked: a revoked one ends within twice that."""

_ID_CHARS: Final = 16
_SECRET_CHARS: Final = 30  # of 62: 178 bits
_CHECK_CHARS: Final = 6
_LOWER: Final = string.digits + string.ascii_lowercase
_ALL: Final = _LOWER + string.ascii_uppercase
_ID: Final = re.compile(rf"[0-9a-z]{{{_ID_CHARS}}}")
_TOKEN: Final = re.compile(rf"{PREFIX}({_ID.pattern})_[0-9A-Za-z]{{{_SECRET_CHARS + _CHECK_CHARS}}}")
_HINT_CHARS: Final = 12

Letters = Callable[[str, int], str]
"""`letters(alphabet, count)`: so many letters of the alphabet, each by chance, such as nobody can foretell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key without its secret. It acts for `created_by` in `namespace`. `expires_at` None: never."""

    id: str
    namespace: str
    name: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None

    @property
    def hint(self) -> str:
        """How its token begins: a part of what is not secret of it."""
        return f"{PREFIX}{self.id}"[:_HINT_CHARS]

    def expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key and the SHA-256 of its token."""

    key: ApiKey
    digest: bytes


@dataclass(frozen=True, slots=True)
class Position:
    """A key's place in a list, newest first."""

    created_at: datetime
    id: str


def new_id(letters: Letters) -> str:
    """The id of a new key."""
    return letters(_LOWER, _ID_CHARS)


def new_token(key_id: str, letters: Letters) -> str:
    """A new token of the key."""
    body = f"{PREFIX}{key_id}_{letters(_ALL, _SECRET_CHARS)}"
    return body + _check(body)


def is_api_key(token: str) -> bool:
    """Whether the token is meant to be an API key; it may be a wrong one."""
    return token.startswith(PREFIX)


def id_of(token: str) -> str | None:
    """The id that a token names; None when no key has such a token."""
    match = _TOKEN.fullmatch(token)
    if match is None or _check(token[:-_CHECK_CHARS]) != token[-_CHECK_CHARS:]:
        return None
    return match[1]


def may_be_id(text: str) -> bool:
    """Whether a key may have this id."""
    return _ID.fullmatch(text) is not None


def digest_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


def checked_namespace(namespace: str) -> str:
    """Raises InvalidField for what can be no namespace."""
    if catalog.NAMESPACE_PATTERN.fullmatch(namespace) is None:
        raise InvalidField(
            f"namespace must be sless- and 16 hexadecimal digits, not {namespace[:64]!r}", field="namespace"
        )
    return namespace


def checked_name(name: str) -> str:
    """Raises InvalidField for a name that people can't read."""
    longest = limits.NAME_CHARS.value
    if not (1 <= len(name) <= longest and name.isprintable() and name.strip() == name):
        raise InvalidField(
            f"name must be 1 to {longest} printable characters without blanks around them, not {name[:80]!r}",
            field="name",
        )
    return name


def checked_expiry(expires_at: datetime | None, now: datetime) -> datetime | None:
    """Raises InvalidField for a time that is over."""
    if expires_at is not None and expires_at <= now:
        raise InvalidField(f"expires_at must be in the future, not {expires_at.isoformat()}", field="expires_at")
    return expires_at


def _check(body: str) -> str:
    """The CRC-32 of what stands before it, in base 62."""
    number = zlib.crc32(body.encode())
    letters = ""
    for _ in range(_CHECK_CHARS):
        number, digit = divmod(number, len(_ALL))
        letters = _ALL[digit] + letters
    return letters
