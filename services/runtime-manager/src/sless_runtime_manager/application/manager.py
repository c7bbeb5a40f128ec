"""All functions that are looked after, and the use cases of the API."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from datetime import timedelta
from typing import Final

from sless_platform.backoff import Backoff
from sless_platform.errors import PlatformError, Unavailable
from sless_platform.logging import get_logger

from sless_runtime_manager.application.board import Watcher
from sless_runtime_manager.application.keeper import Fleet, Keeper
from sless_runtime_manager.application.tools import Tools
from sless_runtime_manager.domain import Function, Workload
from sless_runtime_manager.ports import FunctionChanges, InstanceEnded, InstanceHandle, InstanceListens, InstanceOutput

log = get_logger(__name__)

_PAUSES: Final = Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(seconds=2))
_REMEMBERED: Final = 1_000
_ADOPTION_WAIT: Final = timedelta(seconds=5)


class RuntimeManager:
    """Keeps a keeper for each function that needs one, and nothing for the others.

    `run` is its whole work; the API's methods may be called meanwhile.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.fleet: Fleet = {}
        """Every instance that is looked after, by its identity."""
        self._keepers: dict[str, Keeper] = {}
        self._orphans: dict[str, list[InstanceHandle]] = defaultdict(list)
        self._remembered: OrderedDict[str, tuple[Function, Workload]] = OrderedDict()
        """Of functions that are not looked after any more, as long as the registry's watch tells nothing else."""
        self._seen: set[str] | None = None
        self._tasks: asyncio.TaskGroup

    @property
    def kept(self) -> tuple[str, ...]:
        """The functions that are looked after now."""
        return tuple(sorted(self._keepers))

    # The API.

    async def ensure_instances(self, *, function_uid: str, concurrency: int) -> None:
        """Notes that calls wait. Raises WorkloadNotFound, NothingToRun, Disabled, StartFailed, Unavailable."""
        await self._adopted()
        keeper = self._keepers.get(function_uid)
        if keeper is None:
            function, workload = await self._what_should_run(function_uid)
            keeper = self._keeper(function_uid)
            keeper.tell(function)
            keeper.tell_workload(workload)
        keeper.ensure(concurrency)

    async def _what_should_run(self, function_uid: str) -> tuple[Function, Workload]:
        remembered = self._remembered.pop(function_uid, None)
        if remembered is not None:
            return remembered
        return await asyncio.gather(
            self._tools.registry.get_function(function_uid), self._tools.registry.get_workload(function_uid)
        )

    def watch_instances(self) -> AbstractContextManager[Watcher]:
        """A watcher of all instance sets, connected for the block."""
        return self._tools.board.watching()

    def note_activity(self, *, watcher: Watcher, function_uid: str, concurrency: int) -> None:
        """A watcher tells of calls. Of a function that isn't looked after nothing runs, so there is nothing to keep."""
        keeper = self._keepers.get(function_uid)
        if keeper is not None:
            keeper.active(watcher.source, concurrency)

    async def _adopted(self) -> None:
        try:
            async with asyncio.timeout(_ADOPTION_WAIT.total_seconds()):
                await self._tools.board.opened.wait()
        except TimeoutError:
            raise Unavailable(
                "the instances that run already are still being looked at", retry_after=timedelta(seconds=1)
            ) from None

    # The work.

    async def run(self) -> None:
        """Until cancelled. The instances live on."""
        async with asyncio.TaskGroup() as self._tasks:
            for handle in await self._alive():
                self._orphans[handle.function_uid].append(handle)
            self._tasks.create_task(self._follow_registry())

    async def _alive(self) -> Sequence[InstanceHandle]:
        pauses = _PAUSES.delays()
        while True:
            try:
                return await self._tools.backend.list()
            except PlatformError as error:
                log.warning("instances can't be listed now", reason=error.reason, error=error.message)
                await asyncio.sleep(next(pauses).total_seconds())

    async def _follow_backend(self) -> None:
        """Hand what the backend says of an instance to it."""
        pauses = _PAUSES.delays()
        while True:
            try:
                async for event in self._tools.backend.events():
                    instance = self.fleet.get(event.instance_id)
                    if instance is None:
                        continue
                    match event:
                        case InstanceEnded():
                            instance.ended(event)
                        case InstanceListens():
                            instance.listens(event.address)
                        case InstanceOutput():
                            instance.printed(event)
            except Unavailable as error:
                log.warning("the backend can't be followed now", reason=error.reason, error=error.message)
            await asyncio.sleep(next(pauses).total_seconds())

    async def _follow_registry(self) -> None:
        async for changes in self._tools.registry.watch():
            self._apply(changes)

    def _apply(self, changes: FunctionChanges) -> None:
        if changes.reset:
            self._seen = set()
            self._remembered.clear()
        for function in changes.functions:
            self._tell(function)
        for function_uid in changes.purged:
            self._remembered.pop(function_uid, None)
            if function_uid in self._keepers:
                self._keepers[function_uid].purge()
        if self._seen is not None and changes.complete:
            self._snapshot_is_complete(self._seen)
            self._seen = None

    def _tell(self, function: Function) -> None:
        self._remembered.pop(function.uid, None)
        if self._seen is not None:
            self._seen.add(function.uid)
        known = function.uid in self._keepers or function.uid in self._orphans
        if known or function.needs_work:
            self._keeper(function.uid).tell(function)

    def _snapshot_is_complete(self, seen: set[str]) -> None:
        """What runs, or is looked after, and was not named is gone."""
        for function_uid in (self._keepers.keys() | self._orphans.keys()) - seen:
            self._keeper(function_uid).purge()
        if not self._tools.board.opened.is_set():
            self._tasks.create_task(self._open_board(list(self._keepers.values())))
            self._tasks.create_task(self._follow_backend())

    async def _open_board(self, keepers: Sequence[Keeper]) -> None:
        for keeper in keepers:
            await keeper.settled.wait()
        self._tools.board.open()
        log.info("instances adopted", instances=len(self.fleet), functions=len(self._keepers))

    # Keepers.

    def _keeper(self, function_uid: str) -> Keeper:
        keeper = self._keepers.get(function_uid)
        if keeper is None:
            keeper = Keeper(function_uid, self._tools, self.fleet, self._orphans.pop(function_uid, ()))
            self._keepers[function_uid] = keeper
            # It outlives whatever call it was made for, and belongs to none.
            self._tasks.create_task(self._keep(function_uid, keeper), context=Context())
        return keeper

    async def _keep(self, function_uid: str, keeper: Keeper) -> None:
        """Run a keeper to its end. One that breaks is replaced by one that adopts what runs: others do not notice."""
        pauses = _PAUSES.delays()
        while not await self._ran_well(function_uid, keeper):
            keeper.settled.set()
            await asyncio.sleep(next(pauses).total_seconds())
            alive = [handle for handle in await self._alive() if handle.function_uid == function_uid]
            function = keeper.function
            keeper = self._keepers[function_uid] = Keeper(function_uid, self._tools, self.fleet, alive)
            if function is not None:
                keeper.tell(function)
        del self._keepers[function_uid]
        if keeper.known is not None:
            self._remember(function_uid, keeper.known)

    def _remember(self, function_uid: str, known: tuple[Function, Workload]) -> None:
        """A function that is called now and then is started again without asking what it is."""
        self._remembered[function_uid] = known
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    async def _ran_well(self, function_uid: str, keeper: Keeper) -> bool:
        try:
            await keeper.run()
        except Exception:
            log.exception("keeper failed", function=function_uid)
            return False
        return True
