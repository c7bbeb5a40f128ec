"""API keys for tests."""

from __future__ import annotations

import secrets


def random_letters(alphabet: str, count: int) -> str:
    """So many letters of the alphabet."""
    return "".join(secrets.choice(alphabet) for _ in range(count))
