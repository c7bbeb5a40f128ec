"""Whatever happens in whatever order: callers are never sent to two generations, nothing exceeds its bound, nothing is left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sless_platform.errors import FailedPrecondition, NotFound, Unavailable
from sless_runtime_manager.domain import InstanceSet, Outcome, Phase
from sless_runtime_manager.errors import InstancesExhausted
from sless_runtime_manager.planning import Stage
from sless_runtime_manager.ports import InstanceHandle

from tests.support.runtime_manager import Invoker, MemoryRegistry, Verdict, World, not_loadable
from tests.support.virtual_time import VirtualTimeLoop

MOST = 3
LONG = 200.0
"""Seconds that are enough for every start, pause and probe, and less than what makes a function idle."""

DRAINED = 60.0
"""Seconds in which every instance that has to go is gone."""

names = st.sampled_from(["f", "g"])
templates = st.sampled_from(["a", "b", "c", "broken", "hanging"])
USELESS = {"broken", "hanging"}


def _verdict(handle: InstanceHandle) -> Verdict:
    return not_loadable() if handle.template == "broken" else "hang" if handle.template == "hanging" else "ready"


class _Watching(Invoker):
    """Sees to it that calls are never sent to two generations at once."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def applied(self, changed: InstanceSet) -> None:
        specs = {spec.instance_id: spec for spec in self._world.machine.started}
        told = {specs[one.instance_id].template for one in changed.instances}
        assert len(told) <= 1, f"callers were told of {told}"
        assert not told & USELESS, f"callers were told of {told}"
        assert len(changed.instances) <= MOST


class _Registry(MemoryRegistry):
    """Sees to it that Ready is reported only when callers know of an instance."""

    world: World

    async def report_status(self, function_uid: str, outcome: Outcome) -> bool:
        workload = self.workloads.get(function_uid)
        if outcome.phase is Phase.READY and workload is not None and workload.generation == outcome.generation:
            told = self.world.board.told(function_uid)
            assert told.instances or workload.limits.most == 0, "Ready although there is no instance"
            assert workload.template not in USELESS or workload.limits.most == 0
        return await super().report_status(function_uid, outcome)


class AnythingHappens(RuleBasedStateMachine):
    """Events at random; `settle` lets time pass until nothing moves, and then everything must be as it should."""

    @initialize(drain=st.sampled_from([0, 20, 1_000]))
    def begin(self, drain: int) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self.world = World(registry=_Registry(), drain=timedelta(seconds=drain))
        self.deleted = 0
        self.world.invoker = _Watching(self.world)
        self.world.registry.world = self.world  # type: ignore[attr-defined]
        self.world.probes.verdict = _verdict
        self.play(self.begun())

    def uid(self, name: str) -> str:
        """The identity of the function that has the name now: a deleted one's never comes back."""
        return f"{name}-{self.deleted}"

    async def begun(self) -> None:
        self.world.start()
        await self.world.passes(1)

    def play(self, step: Coroutine[Any, Any, None]) -> None:
        """Run one step, and a moment more."""

        async def whole() -> None:
            await step
            await self.world.passes(0.2)

        self.runner.run(whole())

    @rule(name=names, template=templates, least=st.integers(0, MOST), deploying=st.booleans())
    def new_generation(self, name: str, template: str, least: int, deploying: bool) -> None:
        async def step() -> None:
            self.world.registry.put(self.uid(name), template=template, least=least, most=MOST, deploying=deploying)

        self.play(step())

    @rule(name=names)
    def switch_off(self, name: str) -> None:
        async def step() -> None:
            self.world.registry.put(self.uid(name), least=0, most=0)

        self.play(step())

    @precondition(lambda self: self.world.registry.workloads)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        async def step() -> None:
            self.world.registry.delete(data.draw(st.sampled_from(sorted(self.world.registry.workloads))))
            self.deleted += 1

        self.play(step())

    @rule(name=names, concurrency=st.integers(1, 20))
    def call(self, name: str, concurrency: int) -> None:
        async def step() -> None:
            with suppress(FailedPrecondition, NotFound, Unavailable):
                await self.world.ensure(self.uid(name), concurrency)

        self.play(step())

    @precondition(lambda self: self.world.machine.specs)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        async def step() -> None:
            self.world.crash(data.draw(st.sampled_from(sorted(self.world.machine.specs))))

        self.play(step())

    @precondition(lambda self: self.world.machine.specs)
    @rule(data=st.data())
    def lose_a_socket(self, data: st.DataObject) -> None:
        async def step() -> None:
            handle = self.world.machine.handles[data.draw(st.sampled_from(sorted(self.world.machine.specs)))]
            self.world.probes.unreachable.add(handle.address)

        self.play(step())

    @rule()
    def restart(self) -> None:
        self.play(self.world.restart())

    @rule()
    def resync(self) -> None:
        async def step() -> None:
            self.world.registry.resync()

        self.play(step())

    @rule(seconds=st.sampled_from([0.05, 1, 70, 400]))
    def the_registry_is_away(self, seconds: float) -> None:
        async def step() -> None:
            self.world.registry.away = True
            await self.world.passes(seconds)
            self.world.registry.away = False

        self.play(step())

    @rule(seconds=st.sampled_from([0.5, 65]))
    def the_machine_is_full(self, seconds: float) -> None:
        async def step() -> None:
            self.world.machine.refusal = InstancesExhausted("no memory left")
            await self.world.passes(seconds)
            self.world.machine.refusal = None

        self.play(step())

    @rule(seconds=st.sampled_from([0.05, 10, 400]))
    def time_passes(self, seconds: float) -> None:
        self.play(self.world.passes(seconds))

    @rule()
    def settle(self) -> None:
        self.play(self.settled())

    async def settled(self) -> None:
        """In the end everything is as it should be; an instance that drains just then is waited for."""
        loop = asyncio.get_running_loop()
        await self.world.passes(LONG)
        until = loop.time() + DRAINED
        while (problem := self.problem()) and loop.time() < until:
            await self.world.passes(1)
        assert not problem, problem

    def problem(self) -> str:
        """What is not as it should be, the first such thing; "" when nothing is."""
        registry, started = self.world.registry, self.world.machine.started
        if any(function.deleted for function in registry.functions.values()):
            return "a deleted function was not cleaned up"
        uids = {spec.function_uid for spec in started} | registry.workloads.keys()
        return next(filter(None, map(self.problem_of, sorted(uids))), "")

    def problem_of(self, uid: str) -> str:
        """The same, of one function."""
        machine, workload = self.world.machine, self.world.registry.workloads.get(uid)
        serving, alive = self.world.invoker.serving(uid), machine.alive(uid)
        useful = {one for one in alive if machine.specs[one].template not in USELESS}
        if useful != serving:
            return f"{uid}: {useful} run, and calls are sent to {serving}"
        if workload is None or workload.limits.most == 0:
            return f"{uid}: {alive} run and should not" if alive else ""
        if workload.deploying:
            return f"{uid}: nobody told how generation {workload.generation} went"
        if workload.template in USELESS:
            return ""
        if {machine.specs[one].template for one in serving} - {workload.template}:
            return f"{uid}: another template than {workload.template} serves"
        return f"{uid}: {len(alive)} run" if not workload.limits.least <= len(alive) <= MOST else ""

    @invariant()
    def nothing_exceeds_its_bound(self) -> None:
        if not hasattr(self, "world") or not self.world.board.opened.is_set():
            return  # What an earlier process left is still being looked at.
        fleet, draining = self.world.manager.fleet.values(), self.world.machine.draining
        there = [one for one in fleet if one.stage is not Stage.LEAVING and one.instance_id not in draining]
        live = Counter((one.function_uid, one.template) for one in there)
        assert max(live.values(), default=0) <= MOST
        broken = [task.exception() for task in self.world._tasks if task.done()]
        assert broken == []

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            try:
                self.play(self.settled())
            finally:
                self.runner.run(self.world.kill())
                self.runner.close()


TestAnythingHappens = AnythingHappens.TestCase
TestAnythingHappens.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
