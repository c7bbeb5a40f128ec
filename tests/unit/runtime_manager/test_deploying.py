"""A generation's way from the registry to Ready or Failed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sless_runtime_manager.domain import Phase
from sless_runtime_manager.errors import InstancesExhausted, InstanceUnreachable, LauncherUnavailable, StartFailed

from tests.support.runtime_manager import World, a_world, not_loadable
from tests.support.virtual_time import run_in_virtual_time

Scenario = Callable[[World], Any]


def play(scenario: Scenario, **options: Any) -> None:
    async def whole() -> None:
        async with a_world(**options) as world:
            await scenario(world)

    run_in_virtual_time(whole())


@pytest.mark.fault(3)
def test_ready_is_reported_after_the_probe_was_answered_and_the_invoker_has_applied_it() -> None:
    async def scenario(world: World) -> None:
        world.probes.delay = timedelta(seconds=7)
        world.invoker.acknowledges = False
        world.registry.put("f")
        await world.until(lambda: world.machine.alive("f"))
        await world.passes(6)
        assert world.invoker.serving("f") == set()
        await world.until(lambda: world.invoker.serving("f"))
        await world.passes(5)
        assert world.registry.outcomes("f") == []
        world.invoker.acknowledges = True
        world.registry.put("g")
        await world.ready("f")
        assert world.invoker.serving("f") == set(world.machine.alive("f"))

    play(scenario)


def test_without_an_invoker_ready_waits_for_nobody() -> None:
    async def scenario(world: World) -> None:
        await world.kill()
        world.start()
        world._tasks.pop().cancel()
        world.registry.put("f")
        await world.ready("f")

    play(scenario)


@pytest.mark.fault(6)
def test_a_new_generation_of_the_same_template_starts_nothing_and_is_ready() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=2)
        await world.ready("f")
        serving = world.invoker.serving("f")
        for _ in range(5):
            world.registry.put("f")
            await world.ready("f")
        world.registry.resync()
        await world.passes(100)
        assert world.starts("f") == 2
        assert world.invoker.serving("f") == serving
        assert world.invoker.sets["f"].generation == 6

    play(scenario)


def test_a_function_that_needs_no_instance_is_proven_once_then_let_go_and_forgotten() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f")
        await world.ready("f")
        assert len(world.invoker.serving("f")) == 1
        await world.until(lambda: not world.machine.alive("f"), within=310)
        assert world.starts("f") == 1
        await world.until(lambda: world.manager.kept == ())
        assert world.board.sets() == ()

    play(scenario)


@pytest.mark.fault(4)
def test_a_new_template_replaces_all_instances_in_one_batch_and_the_old_ones_drain_after_it() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=2, timeout=40)
        await world.ready("f")
        old = world.invoker.serving("f")
        world.registry.put("f", template="b", timeout=40)
        await world.ready("f")
        await world.until(lambda: set(world.machine.alive("f")) == world.invoker.serving("f"))
        assert world.invoker.serving("f").isdisjoint(old)
        assert len(world.invoker.serving("f")) == 2
        for serving in (one.instances for one in world.invoker.history[1:]):
            assert serving, "callers were told of no instance during the switch"
            assert len({one.instance_id in old for one in serving}) == 1, "callers were told of both generations"
        assert {world.machine.graces[one] for one in old} == {timedelta(seconds=46)}

    play(scenario)


def test_old_instances_are_not_touched_before_the_invoker_has_let_go_of_them() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        old = world.machine.alive("f")
        world.invoker.acknowledges = False
        world.registry.put("f", template="b")
        await world.until(lambda: world.invoker.serving("f").isdisjoint(old))
        await world.passes(10)
        assert set(old) <= set(world.machine.alive("f"))

    play(scenario)


@pytest.mark.fault(17)
def test_a_generation_that_cannot_be_loaded_fails_with_the_traceback_and_the_old_one_serves_on() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        old = world.invoker.serving("f")
        world.probes.verdict = lambda handle: not_loadable() if handle.template == "b" else "ready"
        world.registry.put("f", template="b")
        await world.until(lambda: world.registry.outcomes("f")[-1].phase is Phase.FAILED)
        assert "AttributeError: handle" in world.registry.outcomes("f")[-1].message
        await world.passes(1_000)
        assert world.invoker.serving("f") == old
        assert world.starts("f") == 2
        world.crash(next(iter(old)))
        await world.replaced("f", old)
        assert world.machine.alive("f", template="a")

    play(scenario)


def test_an_old_generation_serves_again_after_being_idle_when_the_newest_one_failed() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f")
        await world.ready("f")
        world.probes.verdict = lambda handle: not_loadable() if handle.template == "b" else "ready"
        world.registry.put("f", template="b")
        await world.until(lambda: world.registry.outcomes("f")[-1].phase is Phase.FAILED)
        await world.until(lambda: not world.machine.alive("f"), within=400)
        await world.passes(1_000)
        await world.ensure("f")
        await world.until(lambda: world.machine.alive("f", template="a"))
        await world.until(lambda: world.invoker.serving("f"))

    play(scenario)


def test_an_instance_that_ends_before_it_is_ready_fails_its_generation_in_words() -> None:
    async def scenario(world: World) -> None:
        world.probes.verdict = lambda _handle: "hang"
        world.registry.put("f", memory_mb=64)
        await world.until(lambda: world.machine.alive("f"))
        (instance,) = world.machine.alive("f")
        world.machine.print(instance, "allocating\n")
        world.crash(instance, exit_code=None, signal=9)
        await world.until(lambda: world.registry.outcomes("f"))
        message = world.registry.outcomes("f")[0].message
        assert "killed" in message
        assert "64 MiB" in message
        assert message.endswith("allocating")

    play(scenario)


def test_an_instance_that_closes_the_connection_before_hello_fails_its_generation_and_is_stopped() -> None:
    async def scenario(world: World) -> None:
        world.probes.verdict = lambda _handle: InstanceUnreachable("it closed the connection")
        world.registry.put("f")
        await world.until(lambda: world.registry.outcomes("f"))
        assert world.registry.outcomes("f")[0].message == "it closed the connection"
        assert world.machine.alive("f") == []

    play(scenario)


def test_a_start_that_takes_too_long_fails_and_is_stopped() -> None:
    async def scenario(world: World) -> None:
        world.probes.verdict = lambda _handle: "hang"
        world.registry.put("f")
        await world.until(lambda: world.registry.outcomes("f"), within=61)
        assert "within 60 s" in world.registry.outcomes("f")[0].message
        assert world.machine.alive("f") == []

    play(scenario)


def test_a_start_that_the_backend_refuses_for_good_fails_the_generation() -> None:
    async def scenario(world: World) -> None:
        world.machine.refusal = StartFailed("could not mount: no such layer")
        world.registry.put("f")
        await world.until(lambda: world.registry.outcomes("f"))
        assert world.registry.outcomes("f")[0].phase is Phase.FAILED
        assert "no such layer" in world.registry.outcomes("f")[0].message

    play(scenario)


@pytest.mark.parametrize("refusal", [LauncherUnavailable("no launcher"), InstancesExhausted("no memory left")])
def test_what_the_platform_cannot_do_now_is_retried_and_never_the_functions_failure(refusal: Any) -> None:
    async def scenario(world: World) -> None:
        world.machine.refusal = refusal
        world.registry.put("f")
        await world.passes(120)
        assert {outcome.phase for outcome in world.registry.outcomes("f")} == {Phase.DEPLOYING}
        assert world.registry.outcomes("f")[0].message == refusal.message
        assert world.invoker.failure("f") == ""
        world.machine.refusal = None
        await world.ready("f")

    play(scenario)


def test_a_newer_generation_overtakes_one_that_is_still_starting() -> None:
    async def scenario(world: World) -> None:
        world.probes.verdict = lambda handle: "hang" if handle.template == "b" else "ready"
        world.registry.put("f", template="b")
        await world.until(lambda: world.machine.alive("f"))
        world.registry.put("f", template="c")
        await world.ready("f")
        await world.until(lambda: not world.machine.alive("f", template="b"))
        assert [outcome.generation for outcome in world.registry.outcomes("f")] == [2]

    play(scenario)


def test_going_back_to_the_template_that_still_serves_starts_nothing() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        serving = world.invoker.serving("f")
        world.probes.verdict = lambda handle: "hang" if handle.template == "b" else "ready"
        world.registry.put("f", template="b")
        await world.until(lambda: world.machine.alive("f", template="b"))
        world.registry.put("f", template="a")
        await world.ready("f")
        assert world.invoker.serving("f") == serving
        await world.until(lambda: not world.machine.alive("f", template="b"))

    play(scenario)


def test_switching_off_lets_all_instances_go_and_back_on_proves_anew() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=2, most=2)
        await world.ready("f")
        world.registry.put("f", least=0, most=0)
        await world.ready("f")
        await world.until(lambda: not world.machine.alive("f"))
        assert world.invoker.serving("f") == set()
        await world.until(lambda: world.manager.kept == ())
        world.registry.put("f", least=0, most=2)
        await world.ready("f")
        assert len(world.invoker.serving("f")) == 1

    play(scenario)


def test_being_switched_off_proves_nothing() -> None:
    async def scenario(world: World) -> None:
        world.probes.verdict = lambda _handle: not_loadable()
        world.registry.put("f", least=1)
        await world.until(lambda: world.registry.outcomes("f"))
        world.registry.put("f", least=0, most=0)
        await world.ready("f")
        world.registry.put("f", least=1, most=1)
        await world.until(lambda: world.registry.outcomes("f")[-1].generation == 3)
        assert world.registry.outcomes("f")[-1].phase is Phase.FAILED

    play(scenario)


def test_the_switch_waits_for_as_many_new_instances_as_the_calls_need() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", most=3, concurrency=2)
        await world.ready("f")
        await world.ensure("f", 6)
        await world.until(lambda: len(world.invoker.serving("f")) == 3)
        world.registry.put("f", template="b")
        await world.ready("f")
        assert {len(one.instances) for one in world.invoker.history[-2:]} == {3}

    play(scenario)


def test_a_configuration_that_comes_while_a_build_runs_is_rolled_out_and_not_reported() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        world.registry.put("f", template="b", deploying=False)
        await world.until(lambda: world.machine.alive("f") == world.machine.alive("f", template="b"))
        assert [outcome.generation for outcome in world.registry.outcomes("f")] == [1]

    play(scenario)


def test_reports_are_repeated_while_the_registry_is_away() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f")
        await world.until(lambda: world.invoker.serving("f"))
        world.registry.away = True
        await world.passes(60)
        world.registry.away = False
        await world.ready("f")

    play(scenario)


def test_starts_are_bounded_however_many_functions_are_deployed_at_once() -> None:
    async def scenario(world: World) -> None:
        world.probes.delay = timedelta(seconds=1)
        for number in range(50):
            world.registry.put(f"f{number}", namespace=f"n{number % 5}")
        for number in range(50):
            await world.ready(f"f{number}")
        assert world.probes.most_at_once <= 4

    play(scenario)
