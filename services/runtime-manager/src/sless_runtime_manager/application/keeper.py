"""Keeps one function's instances as they should be, for as long as there is something to keep."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence

from sless_platform import telemetry, tracing
from sless_platform.errors import NotFound
from sless_platform.faults import fault_point
from sless_platform.logging import get_logger

from sless_runtime_manager.application.deployment import Deployment
from sless_runtime_manager.application.errands import until_answered
from sless_runtime_manager.application.fate import Fate
from sless_runtime_manager.application.instance import Instance
from sless_runtime_manager.application.state import FunctionState
from sless_runtime_manager.application.tools import Tools
from sless_runtime_manager.domain import Function, InstanceSet, Outcome, Phase, Workload
from sless_runtime_manager.planning import Plan, Stage, plan
from sless_runtime_manager.ports import InstanceHandle, InstanceSpec
from sless_runtime_manager.scaling import UNKNOWN_SOURCE

log = get_logger(__name__)

Fleet = MutableMapping[str, Instance]
"""Every instance of this process by its identity, so that what the backend says of one finds it."""


class Keeper:
    """One function. `run` is its work, a task of its owner's; the other methods wake it.

    It acts on one rule: whatever happens, plan anew from what is known, do what the plan says, wait.
    """

    def __init__(self, function_uid: str, tools: Tools, fleet: Fleet, adopted: Sequence[InstanceHandle] = ()) -> None:
        """`adopted`: instances of the function that run already."""
        self.function_uid = function_uid
        self.settled = asyncio.Event()
        """Set once what was adopted has been published, or given up."""
        self._tools = tools
        self._fleet = fleet
        self._adopted = tuple(adopted)
        self._adopt_until = tools.clock() + tools.times.adopt
        self._state = FunctionState(function_uid, tools.policy, tools.times)
        self._instances: dict[str, Instance] = {}
        self._wake = asyncio.Event()
        self._published = 0
        self._set = InstanceSet(function_uid=function_uid)
        self._fetching: asyncio.Task[None] | None = None
        self._telling: tuple[Outcome, asyncio.Task[None]] | None = None
        self._finalising: asyncio.Task[None] | None = None
        self._finalised = False
        self._deployment = Deployment()
        self._tasks: asyncio.TaskGroup

    # What happens.

    @property
    def function(self) -> Function | None:
        """What the registry's watch last told."""
        return self._state.function

    @property
    def known(self) -> tuple[Function, Workload] | None:
        """What should run, when that is known for sure and served; None while something is on its way to be otherwise."""
        return self._state.settled

    def tell(self, function: Function) -> None:
        """The registry's watch tells of the function."""
        self._state.note_function(function)
        self._wake.set()

    def tell_workload(self, workload: Workload) -> None:
        """The registry was asked what should run."""
        self._state.note_workload(workload)
        self._wake.set()

    def purge(self) -> None:
        """The function is gone for good: nobody waits to hear that it is cleaned up."""
        self._state.gone = True
        self._wake.set()

    def ensure(self, concurrency: int) -> None:
        """Calls wait. Raises why none of them needs to: WorkloadNotFound, NothingToRun, Disabled, StartFailed."""
        now = self._tools.clock()
        refusal = self._state.refusal(self._instances.values(), now)
        if refusal is not None:
            raise refusal
        self._state.note_retry(now)
        self.active(UNKNOWN_SOURCE, concurrency)

    def active(self, source: str, concurrency: int) -> None:
        """A caller has seen that many calls at once."""
        self._state.note_demand(source, concurrency, self._tools.clock())
        self._wake.set()

    # The work.

    async def run(self) -> None:
        """Until nothing is left to keep: no instance, nothing to start, nothing to tell."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for handle in self._adopted:
                    self._take_on(handle)
                while not self._reconcile():
                    await self._news()
        finally:
            self._deployment.give_up()
            for instance_id in self._instances:
                del self._fleet[instance_id]

    async def _news(self) -> None:
        now = self._tools.clock()
        moments = [self._state.next_deadline(now), None if self._settled_or_due() else self._adopt_until]
        deadline = min((moment for moment in moments if moment is not None), default=None)
        timeout = None if deadline is None else max((deadline - now).total_seconds(), 0) + 0.001
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return

    def _reconcile(self) -> bool:
        """One step; True when there is nothing to keep."""
        self._wake.clear()
        self._bury()
        self._refresh()
        if not self._adoption_is_over():
            return False
        self._deployment.follow(self._state.workload, self._state.told)
        self._apply(plan(self._state.situation(self._instances.values(), self._tools.clock())))
        self.settled.set()
        self._tell()
        self._finalise()
        return self._is_over()

    def _bury(self) -> None:
        """Take in what became of instances that are no more."""
        for instance in list(self._instances.values()):
            if instance.end is None:
                continue
            del self._instances[instance.instance_id], self._fleet[instance.instance_id]
            if instance.end.fate is not Fate.LEFT:
                log.warning(
                    "instance lost",
                    function=self.function_uid,
                    instance=instance.instance_id,
                    fate=instance.end.fate.value,
                    why=instance.end.message,
                )
            self._state.note_end(instance, instance.end, self._instances.values(), self._tools.clock())

    def _refresh(self) -> None:
        if self._state.is_stale and self._fetching is None:
            self._fetching = self._tasks.create_task(self._fetch())

    async def _fetch(self) -> None:
        try:
            workload = await until_answered(
                "asking for the workload",
                self.function_uid,
                lambda: self._tools.registry.get_workload(self.function_uid),
            )
        except NotFound:
            self.purge()
        else:
            self.tell_workload(workload)
        finally:
            self._fetching = None

    # Adoption.

    def _settled_or_due(self) -> bool:
        return self.settled.is_set() or self._tools.clock() >= self._adopt_until

    def _adoption_is_over(self) -> bool:
        """Whether it is known which of the adopted instances can serve; then they do."""
        if self.settled.is_set() or not self._adopted or self._state.gone:
            return True
        unknown = any(instance.stage is Stage.STARTING for instance in self._instances.values())
        if self._state.workload is None or (unknown and not self._settled_or_due()):
            return False
        ready = [instance for instance in self._instances.values() if instance.stage is Stage.READY]
        self._state.note_adopted(ready, self._tools.clock())
        return True

    # What a plan asks for.

    def _apply(self, todo: Plan) -> None:
        if todo.serving != self._state.serving:
            self._state.note_serving(todo.serving)
        for workload in todo.starts:
            self._start(workload)
        self._publish(leaving=todo.leave)
        for instance_id in todo.leave:
            self._instances[instance_id].leave(self._published)

    def _start(self, workload: Workload) -> None:
        self._state.note_start(workload.template)
        self._take_on(
            InstanceSpec(
                instance_id=self._tools.new_id(),
                function_uid=self.function_uid,
                namespace=workload.namespace,
                uid_index=workload.namespace_number,
                name=workload.name,
                version=workload.version,
                generation=workload.generation,
                template=workload.template,
                runtime=workload.runtime,
                entrypoint=workload.entrypoint,
                layers=workload.layers,
                memory_mb=workload.memory_mb,
                max_concurrency=workload.limits.concurrency,
                env=workload.environment,
                grace=self._state.patience,
            ),
            workload.memory_mb,
        )

    def _take_on(self, start: InstanceSpec | InstanceHandle, memory_mb: int | None = None) -> None:
        instance = Instance(
            start,
            memory_mb=memory_mb,
            tools=self._tools,
            patience=lambda: self._state.patience,
            on_change=self._instance_changed,
        )
        self._instances[instance.instance_id] = self._fleet[instance.instance_id] = instance
        with tracing.within(self._deployment.trace(instance.generation)):
            self._tasks.create_task(instance.live())

    def _instance_changed(self, instance: Instance) -> None:
        if instance.end is None and instance.stage is Stage.READY:
            self._state.note_ready(instance, self._tools.clock())
        self._wake.set()

    def _publish(self, leaving: Sequence[str]) -> None:
        live = [one for one in self._instances.values() if one.stage is not Stage.LEAVING]
        live = [one for one in live if one.instance_id not in leaving]
        ready = [one for one in live if one.stage is Stage.READY and one.template == self._state.serving]
        starting = [one for one in live if one.stage is Stage.STARTING]
        self._set = self._state.instance_set(ready, starting)
        self._published = self._tools.board.publish(self._set) or self._published

    # What has to be told.

    def _tell(self) -> None:
        due = self._state.due_outcome(ready=bool(self._set.instances))
        if self._telling is not None and self._telling[0] != due:
            self._telling[1].cancel()
            self._telling = None
        if due is not None and self._telling is None:
            with tracing.within(self._deployment.trace(due.generation)):
                self._telling = (due, self._tasks.create_task(self._report(due)))

    async def _report(self, outcome: Outcome) -> None:
        if outcome.phase is Phase.READY:
            with telemetry.span("routes"):
                await self._tools.board.applied(self._published)
            fault_point("runtime_manager.after_publish_before_ready")
        try:
            await until_answered(
                "reporting the status",
                self.function_uid,
                lambda: self._tools.registry.report_status(self.function_uid, outcome),
            )
        except NotFound:
            log.info("the registry knows no such function", function=self.function_uid)
        self._state.told = outcome
        self._deployment.told(outcome)
        self._telling = None
        self._wake.set()

    def _finalise(self) -> None:
        if not self._state.gone or self._finalised:
            return
        for instance in self._instances.values():
            instance.hurry()
        if not self._instances and self._finalising is None:
            self._finalising = self._tasks.create_task(self._clean_up())

    async def _clean_up(self) -> None:
        self._tools.logs.remove(self.function_uid)
        if self.function is not None and self.function.deleted:
            fault_point("runtime_manager.before_finalized")
            try:
                await until_answered(
                    "reporting the end",
                    self.function_uid,
                    lambda: self._tools.registry.report_finalized(self.function_uid),
                )
            except NotFound:
                log.info("the registry knows no such function", function=self.function_uid)
        self._finalised = True
        self._wake.set()

    def _is_over(self) -> bool:
        busy = self._instances or self._fetching is not None or self._telling is not None or self._wake.is_set()
        if busy or (self._state.gone and not self._finalised):
            return False
        over = self._state.gone or self._state.is_idle(self._tools.clock())
        if over and not self._set.is_empty:
            self._set = InstanceSet(function_uid=self.function_uid)
            self._tools.board.publish(self._set)
        return over
