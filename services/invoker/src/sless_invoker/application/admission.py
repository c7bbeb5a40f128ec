"""How many calls may run or wait at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from sless_invoker.errors import TooManyRequests

RETRY_AFTER: Final = timedelta(seconds=1)


class NamespaceAdmission:
    """Counts each namespace's calls, and turns away what is above the bound."""

    def __init__(self, limit: int) -> None:
        """`limit`: calls of one namespace that may run or wait at once."""
        self._limit = limit
        self._calls: dict[str, int] = {}

    @contextmanager
    def admit(self, namespace: str) -> Iterator[None]:
        """Holds a place for one call. Raises TooManyRequests when there is none."""
        running = self._calls.get(namespace, 0)
        if running >= self._limit:
            raise TooManyRequests(
                f"{running} calls of this namespace are running, which is all it may have: try again later",
                retry_after=RETRY_AFTER,
            )
        self._calls[namespace] = running + 1
        try:
            yield
        finally:
            left = self._calls[namespace] - 1
            if left:
                self._calls[namespace] = left
            else:
                del self._calls[namespace]
