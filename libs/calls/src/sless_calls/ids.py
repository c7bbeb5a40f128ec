"""Ids of calls: ordered by time, so that records of them can be kept and found in that order."""

import secrets
from datetime import datetime
from typing import Final

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS: Final = 80


def invocation_id(now: datetime, randomness: int) -> str:
    """A ULID (github.com/ulid/spec): 26 characters. `now` is aware; `randomness` is 80 random bits."""
    number = (int(now.timestamp() * 1000) << _RANDOM_BITS) | randomness
    return "".join([_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5)])


def new_invocation_id(now: datetime) -> str:
    """A ULID with randomness of the system's."""
    return invocation_id(now, secrets.randbits(_RANDOM_BITS))
