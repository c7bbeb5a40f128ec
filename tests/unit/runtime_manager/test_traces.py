"""Which trace what is done for a function belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sless_platform import tracing
from sless_platform.tracing import Trace

from tests.support.runtime_manager import World, a_world
from tests.support.virtual_time import run_in_virtual_time

ASKED = Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
OTHER = Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


def play(scenario: Callable[[World], Any]) -> None:
    async def whole() -> None:
        async with a_world() as world:
            await scenario(world)

    run_in_virtual_time(whole())


def test_a_deployment_belongs_to_what_asked_for_it() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", traceparent=ASKED.traceparent)
        await world.ready("f")
        await world.until(lambda: world.registry.report_traces)

        assert world.machine.traces == [ASKED]
        assert world.registry.report_traces == [ASKED]

    play(scenario)


def test_a_newer_generation_belongs_to_its_own() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", traceparent=ASKED.traceparent)
        await world.ready("f")
        world.registry.put("f", template="b", traceparent=OTHER.traceparent)
        await world.until(lambda: len(world.registry.report_traces) == 2)

        assert world.machine.traces == [ASKED, OTHER]
        assert world.registry.report_traces == [ASKED, OTHER]

    play(scenario)


def test_what_is_kept_running_belongs_to_no_call_and_no_deployment_that_is_over() -> None:
    async def scenario(world: World) -> None:
        world.registry.put("f", deploying=False, traceparent=ASKED.traceparent)
        with tracing.within(OTHER):
            await world.ensure("f")
        await world.until(lambda: world.invoker.serving("f"))

        assert world.machine.traces == [None]

    play(scenario)
