"""Instances that end, and runtime-managers that do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sless_platform.errors import Unavailable
from sless_runtime_manager.domain import Phase
from sless_runtime_manager.errors import MemoryExhausted, StartFailed

from tests.support.runtime_manager import World, a_world, not_loadable
from tests.support.virtual_time import run_in_virtual_time


def play(scenario: Callable[[World], Any], **options: Any) -> None:
    async def whole() -> None:
        async with a_world(**options) as world:
            await scenario(world)

    run_in_virtual_time(whole())


async def crash_all(world: World, uid: str) -> None:
    """Once there is an instance that serves, it ends."""
    await world.until(lambda: world.invoker.serving(uid), within=60)
    crashed = world.invoker.serving(uid)
    for instance in crashed:
        world.crash(instance)
    await world.until(lambda: world.invoker.serving(uid).isdisjoint(crashed), within=1)


@pytest.mark.fault(5)
def test_a_crashed_instance_is_withdrawn_at_once_and_replaced_and_others_do_not_notice() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        world.registry.put("g", least=1)
        await world.ready("f")
        await world.ready("g")
        others = [one for one in world.invoker.history if one.function_uid == "g"]
        await crash_all(world, "f")
        await world.until(lambda: world.invoker.serving("f"), within=1)
        assert [one for one in world.invoker.history if one.function_uid == "g"] == others

    play(scenario)


def test_an_instance_that_closes_its_connection_is_taken_for_crashed_and_stopped() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        (broken,) = world.machine.alive("f")
        world.probes.links[broken].close()
        await world.replaced("f", {broken})
        assert broken not in world.machine.alive("f")

    play(scenario)


def test_a_crash_loop_of_what_served_is_repaired_within_a_second() -> None:
    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()
        world.registry.put("f", least=1)
        await world.ready("f")
        pauses = []
        for _ in range(8):
            starts = world.starts("f")
            await crash_all(world, "f")
            crashed = loop.time()
            await world.started("f", starts + 1)
            pauses.append(round(loop.time() - crashed))
        assert pauses == [0, 1, 1, 1, 1, 1, 1, 1]

    play(scenario)


def test_a_function_without_calls_is_not_restarted_when_it_crashes() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f")
        await world.ready("f")
        await world.passes(200)
        await crash_all(world, "f")
        await world.until(lambda: world.invoker.serving("f"), within=1)
        await world.until(lambda: not world.machine.alive("f"), within=301)
        await world.passes(1_000)
        assert world.starts("f") == 2

    play(scenario)


def test_a_function_that_served_and_cannot_start_any_more_is_retried_as_long_as_it_is_wanted() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        world.probes.verdict = lambda _handle: not_loadable()
        await crash_all(world, "f")
        await world.until(lambda: "AttributeError" in world.invoker.failure("f"), within=5)
        await world.passes(300)
        assert 8 <= world.starts("f") <= 20
        world.probes.verdict = lambda _handle: "ready"
        await world.until(lambda: world.invoker.serving("f"), within=31)
        assert [outcome.phase for outcome in world.registry.outcomes("f")] == [Phase.READY]

    play(scenario)


@pytest.mark.fault(5)
def test_an_instance_whose_socket_was_removed_by_hand_is_replaced_and_its_calls_may_finish() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1, timeout=40)
        await world.ready("f")
        (lost,) = world.machine.alive("f")
        world.probes.unreachable.add(world.machine.handles[lost].address)
        await world.replaced("f", {lost})
        assert world.machine.graces[lost] == timedelta(seconds=46)

    play(scenario)


def test_an_instance_that_asks_to_go_is_replaced_without_a_pause() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        for _ in range(5):
            (going,) = world.machine.alive("f")
            world.probes.links[going].departing.set_result(None)
            world.probes.links[going].close()
            await world.replaced("f", {going}, within=1)

    play(scenario)


def test_an_instance_that_is_replaced_may_finish_its_calls_beside_its_successor() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1, timeout=40)
        await world.ready("f")
        (going,) = world.machine.alive("f")
        world.probes.links[going].departing.set_result(None)
        await world.replaced("f", {going}, within=1)
        await world.passes(29)
        assert going in world.machine.alive("f")
        await world.until(lambda: going not in world.machine.alive("f"), within=2)
        assert world.starts("f") == 2

    play(scenario, drain=timedelta(seconds=30))


def test_calls_without_a_limit_have_an_hour_and_when_the_function_is_deleted_five_minutes() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1, timeout=None)
        await world.ready("f")
        (old,) = world.machine.alive("f")
        world.registry.put("f", template="b", timeout=None)
        await world.ready("f")
        await world.passes(10)
        assert world.machine.graces[old] == timedelta(hours=1)
        world.registry.delete("f")
        await world.until(lambda: world.registry.finalized == ["f"], within=305)
        assert world.machine.graces[old] == timedelta(minutes=5)
        assert world.machine.alive("f") == []

    play(scenario, drain=timedelta(hours=2))


def test_a_longer_timeout_of_before_still_holds_for_calls_that_began_under_it() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1, timeout=900)
        await world.ready("f")
        (old,) = world.machine.alive("f")
        world.registry.put("f", template="b", timeout=1)
        await world.ready("f")
        await world.until(lambda: old in world.machine.graces)
        assert world.machine.graces[old] == timedelta(seconds=906)

    play(scenario)


def test_output_and_unattributed_lines_stand_in_the_functions_log() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        (instance,) = world.machine.alive("f")
        world.machine.print(instance, "half")
        await world.passes(1)
        world.crash(instance)
        ended = "the instance ended: it exited with code 1"
        await world.until(lambda: world.logs.lines["f"] == ["loaded", "half", ended, "loaded"])

    play(scenario)


@pytest.mark.fault(1)
def test_a_deleted_function_is_withdrawn_then_stopped_then_cleaned_up_then_reported() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=2)
        await world.ready("f")
        world.invoker.acknowledges = False
        world.registry.delete("f")
        await world.until(lambda: world.invoker.serving("f") == set())
        await world.passes(5)
        assert len(world.machine.alive("f")) == 2
        assert world.registry.finalized == []
        await world.until(lambda: world.registry.finalized == ["f"])
        assert world.machine.alive("f") == []
        assert world.logs.lines == {}
        await world.until(lambda: world.manager.kept == ())

    play(scenario)


def test_a_deleted_function_of_which_nothing_runs_is_reported_too() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", deploying=False)
        await world.passes(1)
        world.registry.away = True
        world.registry.delete("f")
        await world.passes(30)
        world.registry.away = False
        await world.until(lambda: world.registry.finalized == ["f"])
        assert world.starts("f") == 0

    play(scenario)


def test_a_function_deleted_while_it_starts_leaves_nothing() -> None:
    async def scenario(world: World) -> None:
        world.probes.verdict = lambda _handle: "hang"
        world.registry.put("f")
        await world.until(lambda: world.machine.alive("f"))
        world.registry.delete("f")
        await world.until(lambda: world.registry.finalized == ["f"])
        assert world.machine.alive("f") == []

    play(scenario)


def test_a_function_that_is_missing_in_a_new_snapshot_is_stopped() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        del world.registry.functions["f"], world.registry.workloads["f"]
        world.registry.resync()
        await world.until(lambda: not world.machine.alive("f"))
        await world.until(lambda: world.manager.kept == ())
        assert world.registry.finalized == []

    play(scenario)


def test_a_successor_adopts_what_runs_and_starts_nothing() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=2)
        world.registry.put("g")
        await world.ready("f")
        await world.ready("g")
        serving = {uid: world.invoker.serving(uid) for uid in ("f", "g")}
        told = len(world.invoker.history)
        await world.restart()
        await world.until(lambda: world.invoker.resets == 2)
        assert {uid: world.invoker.serving(uid) for uid in ("f", "g")} == serving
        assert len(world.invoker.history) == told + 2
        await world.passes(100)
        assert (world.starts("f"), world.starts("g")) == (2, 1)
        assert world.board.sets() == tuple(world.invoker.sets.values())
        await world.until(lambda: not world.machine.alive("g"), within=301)

    play(scenario)


def test_a_successor_finishes_a_switch_that_was_under_way() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        old = world.invoker.serving("f")
        world.probes.verdict = lambda handle: "hang" if handle.template == "b" else "ready"
        world.registry.put("f", template="b")
        await world.until(lambda: world.machine.alive("f", template="b"))
        await world.kill()
        world.probes.verdict = lambda _handle: "ready"
        world.start()
        await world.ready("f")
        await world.until(lambda: not world.machine.alive("f", template="a"))
        assert world.starts("f") == 2
        assert world.invoker.serving("f").isdisjoint(old)
        assert all(one.instances for one in world.invoker.history[1:])

    play(scenario)


def test_a_successor_keeps_the_old_generation_serving_while_the_new_one_loads() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        old = world.invoker.serving("f")
        world.probes.verdict = lambda handle: "hang" if handle.template == "b" else "ready"
        world.registry.put("f", template="b")
        await world.until(lambda: world.machine.alive("f", template="b"))
        await world.restart()
        await world.until(lambda: world.invoker.resets == 2, within=6)
        assert world.invoker.serving("f") == old

    play(scenario)


def test_a_successor_keeps_the_old_generation_serving_after_the_new_one_failed() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        old = world.invoker.serving("f")
        world.probes.verdict = lambda handle: not_loadable() if handle.template == "b" else "ready"
        world.registry.put("f", template="b")
        await world.until(lambda: world.registry.outcomes("f")[-1].phase is Phase.FAILED)
        await world.restart()
        await world.passes(1_000)
        assert world.invoker.serving("f") == old
        assert world.starts("f") <= 3

    play(scenario)


async def failed_after_serving(world: World) -> None:
    """A function whose template "a" served before its newest generation, "b", could not be started."""
    world.registry.put("f")
    await world.ready("f")
    world.probes.verdict = lambda handle: not_loadable() if handle.template == "b" else "ready"
    world.registry.put("f", template="b")
    await world.until(lambda: world.registry.outcomes("f")[-1].phase is Phase.FAILED)


def test_a_successor_scales_what_serves_on_after_the_newest_generation_failed() -> None:
    async def scenario(world: World) -> None:
        await failed_after_serving(world)
        await world.restart()
        await world.until(lambda: world.invoker.resets == 2)
        limit = world.registry.workloads["f"].limits.concurrency
        await world.ensure("f", 2 * limit)
        await world.until(lambda: len(world.machine.alive("f", template="a")) == 2)
        await world.until(lambda: world.invoker.serving("f") == set(world.machine.alive("f", template="a")))

    play(scenario)


def test_what_served_serves_again_after_all_was_restarted_when_the_newest_generation_failed() -> None:
    async def scenario(world: World) -> None:
        await failed_after_serving(world)
        await world.kill()
        for instance_id in world.machine.alive("f"):
            world.crash(instance_id)
        world.start()
        await world.until(lambda: world.invoker.resets == 2)
        await world.ensure("f")
        await world.until(lambda: world.invoker.serving("f"))
        assert world.invoker.serving("f") == set(world.machine.alive("f", template="a"))
        assert world.registry.outcomes("f")[-1].phase is Phase.FAILED

    play(scenario)


def test_a_successor_stops_what_belongs_to_nobody() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("gone", least=1)
        world.registry.put("deleted", least=1)
        await world.ready("gone")
        await world.ready("deleted")
        await world.kill()
        del world.registry.functions["gone"], world.registry.workloads["gone"]
        world.registry.delete("deleted")
        world.start()
        await world.until(lambda: not world.machine.specs)
        await world.until(lambda: world.registry.finalized == ["deleted"])
        assert world.invoker.sets == {}

    play(scenario)


def test_a_successor_replaces_what_no_longer_answers() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        (stuck,) = world.machine.alive("f")
        await world.kill()
        world.probes.verdict = lambda handle: "hang" if handle.instance_id == stuck else "ready"
        world.start()
        await world.replaced("f", {stuck}, within=70)
        await world.until(lambda: stuck not in world.machine.alive("f"))

    play(scenario)


def test_a_successor_lets_an_instance_that_drains_finish_and_counts_it_no_more() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        (old,) = world.machine.alive("f")
        world.probes.links[old].departing.set_result(None)
        await world.replaced("f", {old})
        new = world.invoker.serving("f")
        await world.restart()
        await world.until(lambda: world.invoker.resets == 2, within=5)
        assert world.invoker.serving("f") == new
        world.crash(*new)
        await world.replaced("f", new, within=1)
        assert old in world.machine.alive("f")
        await world.until(lambda: old not in world.machine.alive("f"), within=60)
        assert world.machine.graces[old] == timedelta(seconds=36)
        assert world.starts("f") == 3

    play(scenario, drain=timedelta(seconds=1_000))


def test_until_adoption_is_over_callers_wait_and_are_not_told_none() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        await world.ready("f")
        await world.kill()
        world.registry.away = True
        world.start()
        with pytest.raises(Unavailable):
            await world.ensure("f")
        assert world.invoker.resets == 1
        world.registry.away = False
        await world.until(lambda: world.invoker.resets == 2)
        assert world.invoker.serving("f") == set(world.machine.alive("f"))

    play(scenario)


def test_a_fault_in_the_care_of_one_function_is_not_noticed_by_others_and_heals() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=1)
        world.registry.put("g", least=1)
        await world.ready("f")
        await world.ready("g")
        serving = world.invoker.serving("f")
        world.registry.defects.append(RuntimeError("something that nobody has thought of"))
        world.registry.put("f", template="b")
        await world.ready("f")
        assert world.invoker.serving("f").isdisjoint(serving)
        assert (world.starts("f"), world.starts("g")) == (2, 1)

    play(scenario)


def test_a_machine_without_memory_is_told_to_callers_and_owner_and_tried_again() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", least=0)
        world.machine.refusal = MemoryExhausted("no memory for one more")
        await world.manager.ensure_instances(function_uid="f", concurrency=1)
        await world.until(lambda: world.invoker.failure("f") == "no memory for one more")
        with pytest.raises(StartFailed, match="no memory") as refused:
            await world.manager.ensure_instances(function_uid="f", concurrency=1)
        assert refused.value.retry_after is not None
        world.machine.refusal = None
        await world.until(lambda: world.invoker.serving("f") != set())

    play(scenario)
