"""Which function a name stands for: remembered, kept true by the registry's watch, asked for on a miss."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sless_invoker.domain import Target
from sless_invoker.ports import Directory, Lookup

Name = tuple[str, str]

_REMEMBERED_FUNCTIONS: Final = 100_000


@dataclass(slots=True)
class _Asking:
    """Look-ups of one name: one that runs, and at most one that has not started yet, which late comers join.

    Nobody joins a look-up that has started: its answer may be older than their question.
    """

    following: asyncio.Future[Target | None] | None = None
    changed_at: int = 0
    running: asyncio.Lock = field(default_factory=asyncio.Lock)


class Routes:
    """Functions by name.

    Only functions that were called are remembered, so that one that nobody calls costs nothing here. One that has
    never served is asked for each time: its first Ready must not be missed.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._known: OrderedDict[Name, Target] = OrderedDict()
        self._asking: dict[Name, _Asking] = {}

    async def find(self, namespace: str, name: str) -> Target | None:
        """The function of that name, None when there is none. Raises Unavailable when that can't be told now."""
        key = (namespace, name)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        return await self._ask(key)

    def apply(self, changed: Iterable[tuple[Name, Target | None]], revision: int) -> None:
        """Takes changes of one revision and those before it; None says that the name stands for nothing now."""
        for key, target in changed:
            asking = self._asking.get(key)
            if asking is not None:
                asking.changed_at = max(asking.changed_at, revision)
            called = self._known.pop(key, None) is not None
            if called and target is not None and target.served:
                self._remember(key, target)

    def forget_all(self) -> None:
        """Drops what is remembered: changes may have been missed."""
        self._known.clear()
        for asking in self._asking.values():
            asking.changed_at = _EVERYTHING

    def __len__(self) -> int:
        return len(self._known)

    async def _ask(self, key: Name) -> Target | None:
        while True:
            asking = self._asking.setdefault(key, _Asking())
            following = asking.following
            if following is None:
                return await self._lead(key, asking)
            await asyncio.wait({following})
            if not following.cancelled():
                return following.result()

    async def _lead(self, key: Name, asking: _Asking) -> Target | None:
        answer: asyncio.Future[Target | None] = asyncio.get_running_loop().create_future()
        asking.following = answer
        try:
            async with asking.running:
                asking.following = None
                answer.set_result(await self._look_up(key, asking))
        except Exception as error:  # noqa: BLE001 - whoever joined gets it too
            answer.set_exception(error)
        finally:
            if not answer.done():
                answer.cancel()
            if asking.following is answer:
                asking.following = None
            if asking.following is None and not asking.running.locked():
                self._asking.pop(key, None)
        return answer.result()

    async def _look_up(self, key: Name, asking: _Asking) -> Target | None:
        while True:
            asking.changed_at = 0
            found = await self._directory.find(*key)
            if not _outdated(found, asking.changed_at):
                break
        if found.target is not None and found.target.served:
            self._remember(key, found.target)
        return found.target

    def _remember(self, key: Name, target: Target) -> None:
        self._known[key] = target
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED_FUNCTIONS:
            self._known.popitem(last=False)


_EVERYTHING: Final = 1 << 62


def _outdated(found: Lookup, changed_at: int) -> bool:
    """Whether a change came by the watch while the answer was under way, and the answer may be older than it."""
    return changed_at > found.read_revision
