"""A call's body on its way to an instance, kept as long as the call may have to go to another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

# An instance that has taken a call gives credit when it has this much; before that it may still refuse.
KEPT_BYTES: Final = 1024 * 1024


class Body:
    """First bytes, and the rest as it comes. `complete`: the first bytes are all."""

    def __init__(self, first: bytes, *, complete: bool, rest: AsyncIterator[bytes]) -> None:
        self.first = first
        self.complete = complete
        self._rest = rest
        self._kept: list[bytes] = []
        self._kept_bytes = len(first)

    @property
    def replayable(self) -> bool:
        """Whether all that was read of the body can be sent once more."""
        return self._kept_bytes <= KEPT_BYTES

    async def chunks(self) -> AsyncIterator[bytes]:
        """What follows the first bytes: what was read before, then the rest."""
        for chunk in list(self._kept):
            yield chunk
        async for chunk in self._rest:
            self._keep(chunk)
            yield chunk

    def _keep(self, chunk: bytes) -> None:
        self._kept_bytes += len(chunk)
        if self.replayable:
            self._kept.append(chunk)
        else:
            self._kept.clear()
