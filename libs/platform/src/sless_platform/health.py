"""What this process can do right now, by name; `""` is its main job, each dependency has a name of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator


class HealthRegistry:
    """Written by the service, read by its health servicer and its readiness page. Belongs to one event loop."""

    def __init__(self) -> None:
        self._states: dict[str, bool] = {"": False}
        self._watchers: set[asyncio.Event] = set()

    def set(self, name: str, serving: bool) -> None:
        """Say whether `name` works; wakes whoever watches."""
        self._states[name] = serving
        for watcher in self._watchers:
            watcher.set()

    def get(self, name: str) -> bool | None:
        """Whether `name` works; None when nothing was ever said of it."""
        return self._states.get(name)

    def states(self) -> dict[str, bool]:
        """All names and whether each works."""
        return dict(self._states)

    async def watch(self, name: str) -> AsyncIterator[bool | None]:
        """The state of `name` now and after every change of it, without end; quick changes may be joined."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            last: bool | None = self.get(name)
            yield last
            while True:
                await changed.wait()
                changed.clear()
                if self.get(name) != last:
                    last = self.get(name)
                    yield last
        finally:
            self._watchers.discard(changed)
