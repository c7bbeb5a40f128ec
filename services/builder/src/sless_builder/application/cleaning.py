"""Removes what nobody needs: after deleted functions, after failed and cancelled builds, after killed processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from sless_platform.errors import PlatformError
from sless_platform.faults import fault_point
from sless_platform.logging import get_logger
from sless_platform.objects import ObjectStore

from sless_builder.domain.build import FunctionUid
from sless_builder.domain.layers import DIGEST_PREFIX, OBJECT_FOLDERS, object_key
from sless_builder.ports import CLEANUP, Cleanup, LayerSink, Leftovers, Registry, Signals

_LOOK_AGAIN: Final = timedelta(seconds=5)
_SWEEP_EVERY: Final = timedelta(hours=1)
_SWEEP_AFTER_START: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_PAGE: Final = 1_000

log = get_logger(__name__)


class Cleaner:
    """Removes objects that nothing names, and reports deleted functions as cleaned up after.

    kept         keys that stay although nothing names them just now.
    may_sweep    whether all that the registry knows is known here: only then may what nothing names be suspected.
    layers_kept  how long a deleted function's layers stay: code that comes back is not built again.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        store: Cleanup,
        objects: ObjectStore,
        sink: LayerSink,
        leftovers: Sequence[Leftovers],
        signals: Signals,
        kept: Callable[[], frozenset[str]],
        may_sweep: Callable[[], bool],
        layers_kept: timedelta,
    ) -> None:
        self._registry = registry
        self._store = store
        self._objects = objects
        self._sink = sink
        self._leftovers = leftovers
        self._signals = signals
        self._kept = kept
        self._may_sweep = may_sweep
        self._layers_kept = layers_kept
        self._next_sweep = time.monotonic() + _SWEEP_AFTER_START.total_seconds()

    async def run(self) -> None:
        """Clean until cancelled."""
        with self._signals.listen(CLEANUP) as something:
            while True:
                try:
                    await self.clean()
                    await self._sweep_now_and_then()
                except (PlatformError, OSError) as error:
                    log.warning("clean-up put off", error=str(error))
                await something.wait(_LOOK_AGAIN)

    async def clean(self) -> None:
        """Everything that is due now. A function is reported only when all that was its own alone is gone, or kept for a while."""
        await self._store.trim()
        deletions = await self._store.deletions()
        for function_uid in deletions:
            await self._store.remove_function(function_uid, layers_kept=self._layers_kept)
        while garbage := await self._store.garbage():
            for key in garbage:
                await self._collect(key)
        for function_uid in deletions:
            await self._finalize(function_uid)

    async def sweep(self) -> None:
        """Suspect what nothing names: a builder was killed between two steps. It goes a day later, if nothing names it then."""
        await self._store.forget_uploads(_DAY)
        page: list[str] = []
        for folder in OBJECT_FOLDERS:
            async for key in self._objects.list(folder):
                page.append(key)
                if len(page) == _PAGE:
                    await self._store.suspect(page, _DAY)
                    page = []
        await self._store.suspect(page, _DAY)
        for place in self._leftovers:
            await place.sweep()

    async def _sweep_now_and_then(self) -> None:
        if time.monotonic() >= self._next_sweep and self._may_sweep():
            self._next_sweep = time.monotonic() + _SWEEP_EVERY.total_seconds()
            await self.sweep()

    async def _collect(self, key: str) -> None:
        async with self._store.collect(key) as unnamed:
            if not unnamed or key in self._kept():
                return
            await self._objects.delete(key)
            digest = DIGEST_PREFIX + key.rpartition("/")[2]
            if key == object_key(digest):
                await self._sink.remove(digest)

    async def _finalize(self, function_uid: FunctionUid) -> None:
        fault_point("builder.cleanup.before_report")
        await self._registry.report_finalized(function_uid)
        await self._store.end_deletion(function_uid)
