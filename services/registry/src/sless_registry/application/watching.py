"""Watch: every change, in the order of revisions, to services that can go on where they were."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from sless_platform.errors import InvalidArgument
from sless_platform.identity import Principal

from sless_registry.application.acknowledgements import Watcher
from sless_registry.application.means import Means
from sless_registry.domain.resources import Function, Version
from sless_registry.errors import InvalidField
from sless_registry.ports import ChangePage, ResourceType

_PAGE: Final = 500
_SILENT_REVISIONS: Final = 1_000
"""After so many revisions without a change of its resources a watcher is told the revision, so that it can resume there."""

T = TypeVar("T", Function, Version)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a watch begins: after a revision that the watcher has applied, else (None) with the next change, or with all there is."""

    types: frozenset[ResourceType]
    revision: int | None = None
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes to apply in this order.

    revision         every change up to it has been sent with this batch; 0 within a snapshot.
    purged           functions that are gone for good, with their versions.
    purged_versions  versions that are kept no more, while their functions live on.
    before           every change up to it was sent before this batch.
    reset            all that was known must be forgotten first.
    more             more batches of the same snapshot follow.
    """

    revision: int
    changed: tuple[Function | Version, ...] = ()
    purged: tuple[str, ...] = ()
    purged_versions: tuple[str, ...] = ()
    before: int = 0
    reset: bool = False
    more: bool = False


class Watching:
    """Called by services only, which the servicer's access rules check."""

    def __init__(self, means: Means) -> None:
        self._means = means

    @contextmanager
    def watch(self, *, principal: Principal, start: Start) -> Iterator[Watch]:
        """A watch, from its start to its end. Raises InvalidField."""
        if not start.types:
            raise InvalidField("resource_types must name at least one", field="resource_types")
        if start.revision is not None and start.revision < 0:
            raise InvalidField(f"revision must be at least 0, not {start.revision}", field="revision")
        follows = principal.service or "" if ResourceType.FUNCTION in start.types else ""
        with self._means.acknowledgements.watching(follows) as watcher:
            yield Watch(self._means, start, watcher)


class Watch:
    """One watcher's stream. What is not taken from `batches` is not read from the store either."""

    def __init__(self, means: Means, start: Start, watcher: Watcher) -> None:
        self._means = means
        self._start = start
        self._watcher = watcher
        self._position = 0
        self._told = 0

    def acknowledge(self, revision: int) -> None:
        """The watcher has applied every change up to this revision. Raises InvalidArgument for one that it was not sent."""
        if revision > self._told:
            raise InvalidArgument(
                f"revision {revision} was acknowledged, but only {self._told} was sent", field="acknowledged_revision"
            )
        self._watcher.acknowledge(revision)

    async def batches(self) -> AsyncIterator[Batch]:
        """All batches, without end. Raises Unavailable when the store is away or the registry stops."""
        async for batch in self._beginning():
            yield self._tell(batch)
        while True:
            await self._means.feed.after(self._position)
            page = await self._means.store.changes(self._start.types, after=self._position, limit=_PAGE)
            if page.span.floor > self._position:
                async for batch in self._snapshot():
                    yield self._tell(batch)
            else:
                self._position = page.revision
                if _worth_telling(page, self._told):
                    yield self._tell(_batch(page, self._told))

    async def _beginning(self) -> AsyncIterator[Batch]:
        span = await self._means.store.span()
        revision = self._start.revision
        if self._start.snapshot or (revision is not None and not span.floor <= revision <= span.head):
            async for batch in self._snapshot():
                yield batch
            return
        # A watcher that resumes has applied what came before, one that begins with the next change has nothing outdated.
        self._position = self._told = span.head if revision is None else revision
        self._watcher.acknowledge(self._position)
        if revision is None:
            yield Batch(self._position, before=self._position)

    async def _snapshot(self) -> AsyncIterator[Batch]:
        """All there is. What changes while it is read comes again with the changes after the revision it began at."""
        head = (await self._means.store.span()).head
        waiting = Batch(0, reset=True, more=True)
        async for page in self._everything():
            if waiting.changed:
                yield waiting
                waiting = Batch(0, more=True)
            waiting = Batch(0, page, reset=waiting.reset, more=True)
        self._position = head
        yield Batch(head, waiting.changed, reset=waiting.reset)

    async def _everything(self) -> AsyncIterator[tuple[Function | Version, ...]]:
        store = self._means.store
        if ResourceType.FUNCTION in self._start.types:
            async for functions in _pages(lambda after: store.all_functions(after=after, limit=_PAGE)):
                yield tuple(functions)
        if ResourceType.VERSION in self._start.types:
            async for versions in _pages(lambda after: store.all_versions(after=after, limit=_PAGE)):
                yield tuple(versions)

    def _tell(self, batch: Batch) -> Batch:
        self._told = max(self._told, batch.revision)
        return batch


async def _pages(read: Callable[[str], Awaitable[Sequence[T]]]) -> AsyncIterator[Sequence[T]]:
    after = ""
    while page := await read(after):
        yield page
        after = page[-1].uid


def _worth_telling(page: ChangePage, told: int) -> bool:
    changed = page.functions or page.versions or page.purged or page.purged_versions
    return bool(changed) or page.revision - told >= _SILENT_REVISIONS


def _batch(page: ChangePage, told: int) -> Batch:
    resources: list[Function | Version] = sorted([*page.functions, *page.versions], key=lambda each: each.revision)
    return Batch(page.revision, tuple(resources), page.purged, page.purged_versions, before=told)
