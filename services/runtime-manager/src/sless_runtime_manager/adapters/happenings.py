"""What happened to instances, until somebody has read it: ends are all kept, output within bounds."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal

from sless_runtime_manager.ports import Happening, InstanceEnded, InstanceListens, InstanceOutput

PENDING_CHARACTERS = 1 << 20
"""Unread output; past that it is dropped and counted."""


class Happenings:
    """A queue with one reader."""

    def __init__(self) -> None:
        self._queue: deque[Happening] = deque()
        self._filled = asyncio.Event()
        self._pending = 0
        self._dropped: dict[str, int] = {}

    def put_end(self, ended: InstanceEnded) -> None:
        """Queue an end."""
        self._dropped.pop(ended.instance_id, None)
        self._put(ended)

    def put_listening(self, listens: InstanceListens) -> None:
        """Queue that an instance listens."""
        self._put(listens)

    def put_output(self, instance_id: str, stream: Literal["stdout", "stderr"], text: str, dropped: int) -> None:
        """Queue output, before which `dropped` bytes were lost already; or drop it too when nobody reads."""
        dropped += self._dropped.pop(instance_id, 0)
        if self._pending + len(text) > PENDING_CHARACTERS:
            self._dropped[instance_id] = dropped + len(text.encode())
            return
        self._pending += len(text)
        self._put(InstanceOutput(instance_id, stream, text, dropped))

    async def get(self) -> Happening:
        """The oldest; waits for one."""
        while not self._queue:
            self._filled.clear()
            await self._filled.wait()
        happening = self._queue.popleft()
        if isinstance(happening, InstanceOutput):
            self._pending -= len(happening.text)
        return happening

    def _put(self, happening: Happening) -> None:
        self._queue.append(happening)
        self._filled.set()
