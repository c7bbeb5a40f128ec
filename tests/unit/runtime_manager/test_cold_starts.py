"""What makes the first call of a function quick: callers connect while code is loaded, and what is known is not asked again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sless_runtime_manager.domain import InstanceSet

from tests.support.runtime_manager import World, a_world, not_loadable
from tests.support.virtual_time import run_in_virtual_time


def play(scenario: Callable[[World], Any], **options: Any) -> None:
    async def whole() -> None:
        async with a_world(**options) as world:
            await scenario(world)

    run_in_virtual_time(whole())


def starting(world: World, uid: str) -> set[str]:
    return {one.instance_id for one in world.invoker.sets.get(uid, InstanceSet(function_uid=uid)).starting}


async def scaled_to_zero(world: World, uid: str) -> None:
    await world.until(lambda: not world.machine.alive(uid) and uid not in world.manager.kept, within=400)


def test_callers_know_an_instance_before_it_is_ready_and_go_on_with_the_same() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", deploying=False)
        world.probes.delay = timedelta(seconds=3)
        await world.ensure("f")
        await world.until(lambda: starting(world, "f"), within=1)
        early = starting(world, "f")
        assert world.invoker.serving("f") == set()
        await world.until(lambda: world.invoker.serving("f"), within=4)
        assert world.invoker.serving("f") == early
        assert starting(world, "f") == set()

    play(scenario)


def test_nobody_knows_an_instance_of_a_generation_that_has_not_served() -> None:
    async def scenario(world: World) -> None:
        world.probes.delay = timedelta(seconds=1)
        world.registry.put("f", template="old")
        await world.ready("f")
        await world.ensure("f")
        await world.passes(1)
        world.registry.put("f", template="new")
        await world.ready("f")
        await world.passes(5)
        assert world.starts("f") == 2
        assert all(not one.starting for one in world.invoker.history)

    play(scenario)


def test_further_instances_of_what_serves_are_known_early() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", most=2, concurrency=1)
        await world.ready("f")
        world.probes.delay = timedelta(seconds=3)
        await world.ensure("f", 2)
        await world.until(lambda: starting(world, "f"), within=1)
        assert len(world.invoker.serving("f")) == 1
        assert world.invoker.serving("f").isdisjoint(starting(world, "f"))

    play(scenario)


def test_one_that_cannot_load_its_code_is_withdrawn_with_the_reason() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", deploying=False)
        world.probes.verdict = lambda _handle: not_loadable()
        await world.ensure("f")
        await world.until(lambda: world.invoker.failure("f"), within=1)
        assert starting(world, "f") == set()

    play(scenario)


def test_a_new_generation_withdraws_what_is_starting() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", deploying=False, template="old")
        world.probes.delay = timedelta(seconds=3)
        await world.ensure("f")
        await world.until(lambda: starting(world, "f"), within=1)
        old = starting(world, "f")
        world.registry.put("f", template="new")
        await world.until(lambda: not starting(world, "f"), within=1)
        await world.ready("f")
        assert world.invoker.serving("f").isdisjoint(old)

    play(scenario)


def test_a_function_that_is_called_again_is_not_asked_for_again() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f")
        await world.ready("f")
        await scaled_to_zero(world, "f")
        asked = world.registry.asked
        for _ in range(3):
            await world.ensure("f")
            await world.until(lambda: world.invoker.serving("f"), within=1)
            await scaled_to_zero(world, "f")
        assert world.registry.asked == asked

    play(scenario)


CHANGES: list[Callable[[World], object]] = [
    lambda world: world.registry.put("f", deploying=False, environment={"A": "2"}, template="other"),
    lambda world: world.registry.resync(),
]


@pytest.mark.parametrize("change", CHANGES, ids=["changed", "watched-anew"])
def test_what_was_known_is_forgotten_when_the_watch_says_so(change: Callable[[World], object]) -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", environment={"A": "1"}, template="one")
        await world.ready("f")
        await scaled_to_zero(world, "f")
        asked = world.registry.asked
        change(world)
        await world.passes(1)
        await world.ensure("f")
        await world.until(lambda: world.invoker.serving("f"), within=1)
        assert world.registry.asked == asked + 1
        assert world.machine.started[-1].env == world.registry.workloads["f"].environment

    play(scenario)


def test_of_many_functions_the_last_ones_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sless_runtime_manager.application.manager._REMEMBERED", 2)

    async def scenario(world: World) -> None:
        for name in ("f", "g", "h"):
            world.registry.put(name, deploying=False)
            await world.ensure(name)
            await world.until(lambda name=name: world.invoker.serving(name), within=1)  # type: ignore[misc]
            await scaled_to_zero(world, name)
        asked = world.registry.asked
        await world.ensure("h")
        await world.ensure("g")
        assert world.registry.asked == asked
        await world.ensure("f")
        assert world.registry.asked == asked + 1

    play(scenario)
