"""Calls that wait, calls that come, calls that don't."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sless_runtime_manager.domain import Phase
from sless_runtime_manager.errors import Disabled, NothingToRun, StartFailed, WorkloadNotFound

from tests.support.runtime_manager import World, a_world, not_loadable
from tests.support.virtual_time import run_in_virtual_time


def play(scenario: Callable[[World], Any], **options: Any) -> None:
    async def whole() -> None:
        async with a_world(**options) as world:
            await scenario(world)

    run_in_virtual_time(whole())


def test_ten_thousand_functions_that_nobody_calls_cost_nothing() -> None:
    async def scenario(world: World) -> None:
        await world.kill()
        for number in range(10_000):
            world.registry.put(f"f{number}", deploying=False)
        world.start()
        await world.until(lambda: world.invoker.resets)
        assert world.manager.kept == ()
        assert world.registry.asked == 0

    play(scenario)


def test_a_call_for_a_forgotten_function_gets_an_instance() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", deploying=False)
        await world.passes(10)
        assert world.starts("f") == 0
        await world.ensure("f")
        await world.until(lambda: world.invoker.serving("f"), within=1)
        assert world.registry.outcomes("f") == []

    play(scenario)


def test_instances_follow_demand_up_at_once_and_down_to_none() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", most=3, concurrency=2)
        await world.ready("f")
        await world.ensure("f", 5)
        await world.until(lambda: len(world.invoker.serving("f")) == 3, within=1)
        await world.until(lambda: len(world.invoker.serving("f")) == 1, within=62)
        await world.until(lambda: not world.invoker.serving("f"), within=245)
        assert world.machine.alive("f") == []
        assert world.starts("f") == 3

    play(scenario)


def test_never_more_instances_than_the_most() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", most=2, concurrency=1)
        await world.ready("f")
        for _ in range(20):
            await world.ensure("f", 1_000)
            await world.passes(0.2)
            assert len(world.machine.alive("f")) <= 2

    play(scenario)


def test_reported_activity_keeps_an_instance_although_nobody_waits() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f")
        await world.ready("f")
        with world.manager.watch_instances() as watcher:
            for _ in range(10):
                await world.passes(100)
                world.manager.note_activity(watcher=watcher, function_uid="f", concurrency=1)
                watcher.acknowledge(world.board.revision)
        assert world.starts("f") == 1
        assert len(world.machine.alive("f")) == 1
        await world.until(lambda: not world.machine.alive("f"), within=301)

    play(scenario)


def test_activity_of_a_function_that_has_nothing_is_no_reason_to_keep_it() -> None:
    async def scenario(world: World) -> None:
        with world.manager.watch_instances() as watcher:
            world.manager.note_activity(watcher=watcher, function_uid="f", concurrency=1)
        assert world.manager.kept == ()

    play(scenario)


def test_calls_are_told_at_once_why_no_instance_will_come() -> None:
    async def scenario(world: World) -> None:
        await world.passes(1)
        with pytest.raises(WorkloadNotFound):
            await world.ensure("unknown")
        world.registry.put("off", most=0, deploying=False)
        with pytest.raises(Disabled, match="replicas is 0"):
            await world.ensure("off")
        world.registry.put("empty", version=0, deploying=False)
        with pytest.raises(NothingToRun):
            await world.ensure("empty")
        await world.until(lambda: world.manager.kept == ())

    play(scenario)


def test_a_failed_start_is_told_until_the_pause_is_over_then_a_new_call_tries_again() -> None:
    async def scenario(world: World) -> None:
        world.probes.verdict = lambda _handle: not_loadable()
        world.registry.put("f")
        await world.until(lambda: world.registry.outcomes("f"))
        assert "AttributeError" in world.invoker.failure("f")
        with pytest.raises(StartFailed, match="AttributeError") as refused:
            await world.ensure("f")
        assert refused.value.retry_after is not None
        await world.passes(60)
        assert world.starts("f") == 1
        world.probes.verdict = lambda _handle: "ready"
        await world.ensure("f")
        await world.until(lambda: world.invoker.serving("f"), within=1)
        assert world.invoker.failure("f") == ""

    play(scenario)


def test_a_generation_that_failed_and_then_starts_after_all_is_reported_ready() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("g", least=1)
        await world.ready("g")
        world.probes.verdict = lambda handle: not_loadable() if handle.function_uid == "f" else "ready"
        world.registry.put("f")
        await world.until(lambda: world.registry.outcomes("f"))
        await world.passes(0.5)
        world.probes.verdict = lambda _handle: "ready"
        await world.until(lambda: world.manager.kept == ("f", "g"))
        await world.passes(0.6)
        await world.ensure("f")
        await world.until(lambda: world.invoker.serving("f"), within=2)
        assert world.registry.outcomes("f")[0].phase is Phase.FAILED

    play(scenario)


def test_a_call_that_waits_while_starts_fail_learns_of_each_failure() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", deploying=False)
        world.probes.verdict = lambda _handle: not_loadable()
        await world.passes(1)
        await world.ensure("f")
        await world.until(lambda: world.invoker.failure("f"), within=1)

    play(scenario)
