"""From a built version to an instance that answers, and from one generation to the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from google.protobuf.duration_pb2 import Duration
from sless.registry.v1.registry_pb2 import FUNCTION_KIND_SERVICE, Replicas, ReportFinalizedRequest

from tests.support.registry import RunningRegistry
from tests.support.runtime_manager_process import Caller, Place, a_process, followed_process, until

HELLO = """
import os
print("loaded")
def handle(event):
    return {"hello": event.get("name"), "env": os.environ.get("WHO"), "instance": os.environ["SLESS_INSTANCE"]}
"""
SLOW = """
import os, time
def handle(event):
    time.sleep(event["seconds"])
    return {"instance": os.environ["SLESS_INSTANCE"]}
"""
ONE = Replicas(min=1, max=1, concurrency=16)


@asynccontextmanager
async def steady_calls(caller: Caller, uid: str) -> AsyncIterator[list[dict[str, str]]]:
    """Calls without a pause for the block, ten at once; their answers. The first that fails is raised."""
    answers: list[dict[str, str]] = []

    async def go_on() -> None:
        while not over.is_set():
            answers.append(await caller.call(uid, {"name": "x"}))

    over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(10):
            tasks.create_task(go_on())
        await until(lambda: answers, "calls are answered")
        yield answers
        over.set()


@pytest.mark.fault(3)
async def test_the_very_next_call_after_ready_is_answered_at_once(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", "import time\ntime.sleep(1)\n" + HELLO)
        await place.ready("hello")
        assert len(caller.serving(function.uid)) == 1
        answer = await caller.call(function.uid, {"name": "Ada"})
        assert answer["hello"] == "Ada"
        assert caller.serving(function.uid) == {answer["instance"]}


@pytest.mark.fault(4)
async def test_a_new_configuration_rolls_out_wholly_and_no_call_is_dropped(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", HELLO, replicas=Replicas(min=2, max=2, concurrency=16))
        await place.ready("hello")
        async with steady_calls(caller, function.uid) as answers:
            for number in range(3):
                old = caller.serving(function.uid)
                await place.update("hello", env_vars={"WHO": str(number)}, memory_mb=128 + number)
                await place.ready("hello")
                assert caller.serving(function.uid).isdisjoint(old)
                assert (await caller.call(function.uid))["env"] == str(number)
                await place.without(old)
        assert {answer["env"] for answer in answers} >= {None, "0", "1"}
        assert len(place.instance_folders) == 2


async def test_a_call_that_runs_when_its_instance_is_replaced_finishes(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller):
        function = await place.create("slow", SLOW, timeout=Duration(seconds=20))
        await place.ready("slow")
        (old,) = caller.serving(function.uid)
        running = asyncio.create_task(caller.call(function.uid, {"seconds": 3}))
        await asyncio.sleep(0.5)
        await place.update("slow", env_vars={"WHO": "b"})
        await place.ready("slow")
        assert not running.done()
        assert (await running)["instance"] == old


@pytest.mark.fault(6)
async def test_a_change_that_shapes_no_instance_restarts_none(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", HELLO, env_vars={f"V{number}": "x" for number in range(20)})
        await place.ready("hello")
        before = (await caller.call(function.uid))["instance"]
        for number in range(5):
            await place.update("hello", display_name=f"Hello {number}", timeout=Duration(seconds=10 + number))
            await place.ready("hello")
        assert (await caller.call(function.uid))["instance"] == before
        assert [folder.name for folder in place.instance_folders] == [before]


@pytest.mark.fault(17)
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def other(event): return 1\n", ["handle", "handler"]),
        ("def handle(event):\n    return 1\nimport nowhere_to_be_found\n", ["nowhere_to_be_found", "line 3"]),
        ("import os\nos.write(1, b'about to go\\n')\nos._exit(7)\n", ["exited with code 7", "about to go"]),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", ["SIGSEGV"]),
        ("block = bytearray(1 << 31)\n", ["memory"]),
    ],
    ids=["no such function", "import error", "exit", "signal", "memory"],
)
async def test_code_that_cannot_be_loaded_fails_the_deployment_and_says_why(
    place: Place, code: str, words: list[str]
) -> None:
    with a_process(place):
        await place.create("broken", code)
        message = await place.failed("broken")
        assert [word for word in words if word not in message] == [], message
        await until(lambda: not place.instance_folders, "nothing is left")


async def test_a_broken_version_leaves_the_good_one_serving(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", HELLO, kind=FUNCTION_KIND_SERVICE)
        await place.ready("hello")
        good = caller.serving(function.uid)
        async with steady_calls(caller, function.uid):
            await place.upload("hello", "raise RuntimeError('no')\n")
            assert "RuntimeError: no" in await place.failed("hello")
        assert caller.serving(function.uid) == good
        await place.upload("hello", HELLO + "# better\n")
        await place.ready("hello")
        assert caller.serving(function.uid).isdisjoint(good)


async def test_a_function_goes_to_none_when_idle_and_comes_back_when_called(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller, SLESS_IDLE_SEC="1"):
        function = await place.create("hello", HELLO)
        await place.ready("hello")
        await until(lambda: not place.instance_folders, "it is idle")
        assert caller.serving(function.uid) == set()
        assert (await caller.call(function.uid, {"name": "again"}))["hello"] == "again"
        await until(lambda: not place.instance_folders, "it is idle again")


async def test_a_function_that_is_switched_off_has_no_instance(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", HELLO, replicas=ONE)
        await place.ready("hello")
        await place.update("hello", replicas=Replicas(min=0, max=0, concurrency=16))
        await place.ready("hello")
        assert caller.serving(function.uid) == set()
        await until(lambda: not place.instance_folders, "nothing runs")
        await place.update("hello", replicas=ONE)
        await place.ready("hello")
        assert (await caller.call(function.uid))["instance"]


@pytest.mark.fault(1)
async def test_nothing_is_left_of_a_deleted_function(place: Place, caller: Caller, registry: RunningRegistry) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", HELLO, replicas=ONE)
        await place.ready("hello")
        await until(lambda: "loaded" in place.log_text(function.uid), "its log is written")
        await place.delete("hello")
        await until(lambda: not place.instance_folders and not place.log(function.uid).exists(), "nothing is left")
        assert caller.serving(function.uid) == set()

        async def purged() -> bool:
            await registry.service("builder").ReportFinalized(ReportFinalizedRequest(function_uid=function.uid))
            return (await registry.store.function_by_uid(function.uid)).function is None

        await until(purged, "the registry has forgotten it: both finalizers have reported")
        again = await place.create("hello", HELLO)
        await place.ready("hello")
        assert (await caller.call(again.uid))["instance"]


async def test_lines_of_no_call_stand_in_the_functions_own_log(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", HELLO)
        other = await place.create("other", "import sys\nprint('mine', file=sys.stderr)\n" + HELLO)
        await place.ready("hello")
        await place.ready("other")
        (instance,) = caller.serving(other.uid)
        await until(lambda: "mine" in place.log_text(other.uid), "its line is written")
        assert f"Z {instance} stderr mine\n" in place.log_text(other.uid)
        assert "mine" not in place.log_text(function.uid)


async def test_as_many_instances_come_as_the_waiting_calls_need(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", HELLO, replicas=Replicas(min=0, max=4, concurrency=1))
        await place.ready("hello")
        await caller.ensure(function.uid, 9)
        await until(lambda: len(caller.serving(function.uid)) == 4, "all four serve")


async def test_many_cold_functions_at_once_all_come_up(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller, SLESS_IDLE_SEC="3600"):
        functions = [await place.create(f"f{number}", HELLO) for number in range(12)]
        answers = await asyncio.gather(*(caller.call(function.uid, {"name": "x"}) for function in functions))
        assert {answer["hello"] for answer in answers} == {"x"}
