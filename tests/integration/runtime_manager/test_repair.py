"""Instances that end, folders that vanish, runtime-managers that are killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from typing import Any

import pytest
from sless.registry.v1.registry_pb2 import Replicas, ReportFinalizedRequest
from sless.runtime_manager.v1 import runtime_manager_pb2 as pb
from sless.runtime_manager.v1.runtime_manager_pb2_grpc import RuntimeManagerServiceStub
from sless_calls import InstanceCrashed
from sless_platform.errors import NotFound, PermissionDenied, Unauthenticated
from sless_platform.identity import IdentitySigner
from sless_platform.rpc.client import ServiceIdentity

from tests.integration.runtime_manager.test_deploying import HELLO, ONE, steady_calls
from tests.support.identity import new_identity_keys
from tests.support.launcher import running_launcher
from tests.support.registry import RunningRegistry
from tests.support.runtime_manager_process import SERVICE, Caller, Place, a_process, followed_process, until

CRASHES = """
import os
def handle(event):
    if event.get("crash"):
        os._exit(1)
    return {"instance": os.environ["SLESS_INSTANCE"], "pid": os.getpid()}
"""


def pid_of(place: Place, instance_id: str) -> int:
    """The instance's first process, as the launcher knows it."""
    client = place.launcher.connect()
    try:
        instances: list[dict[str, Any]] = client.call("list")["instances"]
        return next(int(one["pid"]) for one in instances if one["instance_id"] == instance_id)
    finally:
        client.close()


@pytest.mark.fault(5)
async def test_an_instance_killed_by_hand_is_replaced_within_seconds(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", HELLO, replicas=ONE)
        await place.ready("hello")
        (killed,) = caller.serving(function.uid)
        os.kill(pid_of(place, killed), signal.SIGKILL)
        await until(lambda: caller.serving(function.uid) - {killed}, "another serves", 10)
        assert (await caller.call(function.uid))["instance"] != killed


@pytest.mark.fault(5)
async def test_an_instance_whose_folder_was_removed_is_replaced_within_seconds(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", HELLO, replicas=ONE)
        await place.ready("hello")
        (lost,) = caller.serving(function.uid)
        shutil.rmtree(place.launcher.run / lost)
        await until(lambda: caller.serving(function.uid) - {lost}, "another serves", 15)
        assert (await caller.call(function.uid))["instance"] != lost
        await until(lambda: len(place.instance_folders) == 1, "the lost one is gone")


async def test_a_function_that_crashes_again_and_again_comes_back_and_others_do_not_notice(
    place: Place, caller: Caller
) -> None:
    async with followed_process(place, caller):
        function = await place.create("crashes", CRASHES, replicas=ONE)
        other = await place.create("other", CRASHES + "#", replicas=ONE)
        await place.ready("crashes")
        await place.ready("other")
        unharmed = await caller.call(other.uid)
        async with steady_calls(caller, other.uid) as answers:
            for _ in range(3):
                with pytest.raises(InstanceCrashed):
                    await caller.call(function.uid, {"crash": True})
                assert (await caller.call(function.uid))["instance"]
        assert {answer["pid"] for answer in answers} == {unharmed["pid"]}


@pytest.mark.fault(31)
async def test_seventy_five_crashing_calls_at_once_are_all_answered_and_everything_lives_on(
    place: Place, caller: Caller
) -> None:
    async with followed_process(place, caller):
        function = await place.create("crashes", CRASHES, replicas=Replicas(min=0, max=10, concurrency=16))
        other = await place.create("other", CRASHES + "#", replicas=ONE)
        await place.ready("crashes")
        await place.ready("other")
        unharmed = await caller.call(other.uid)

        async def crash() -> str:
            with suppress(InstanceCrashed):
                await caller.call(function.uid, {"crash": True})
                return "answered"
            return "crashed"

        assert await asyncio.gather(*(crash() for _ in range(75))) == ["crashed"] * 75
        assert (await caller.call(function.uid))["pid"]
        assert await caller.call(other.uid) == unharmed


async def test_killed_and_started_again_it_adopts_what_runs_and_no_call_is_dropped(
    place: Place, caller: Caller
) -> None:
    async with followed_process(place, caller) as first:
        function = await place.create("hello", HELLO, replicas=Replicas(min=2, max=2, concurrency=16))
        await place.ready("hello")
        await until(lambda: len(caller.serving(function.uid)) == 2, "both serve")
        before = caller.serving(function.uid)
        async with steady_calls(caller, function.uid) as answers:
            first.kill()
            answered = len(answers)
            await until(lambda: len(answers) > answered + 100, "calls are answered while it is away")
            async with followed_process(place, caller):
                assert caller.serving(function.uid) == before
                answered = len(answers)
                await until(lambda: len(answers) > answered + 100, "calls are answered")
                await place.update("hello", env_vars={"WHO": "successor"})
                await place.ready("hello")
                assert caller.serving(function.uid).isdisjoint(before)
                await until(lambda: len(place.instance_folders) == 2, "the old ones are gone")


async def test_stopped_in_order_it_ends_at_once_and_leaves_instances_running(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller) as first:
        function = await place.create("hello", HELLO, replicas=ONE)
        await place.ready("hello")
        async with asyncio.timeout(5):
            assert await asyncio.to_thread(first.terminate) == 0
        before = caller.serving(function.uid)
        assert (await caller.call(function.uid))["instance"] in before
        async with followed_process(place, caller):
            assert caller.serving(function.uid) == before


async def test_what_was_deleted_while_it_was_away_is_stopped_by_its_successor(place: Place, caller: Caller) -> None:
    async with followed_process(place, caller) as first:
        function = await place.create("hello", HELLO, replicas=ONE)
        await place.ready("hello")
        first.kill()
        await place.delete("hello")
        assert len(place.instance_folders) == 1
        async with followed_process(place, caller):
            await until(lambda: not place.instance_folders and not place.log(function.uid).exists(), "nothing is left")


@pytest.mark.parametrize(
    "point", ["runtime_manager.after_start_before_publish", "runtime_manager.after_publish_before_ready"]
)
async def test_killed_in_the_midst_of_a_deployment_its_successor_finishes_it_with_what_runs(
    place: Place, caller: Caller, point: str
) -> None:
    async with followed_process(place, caller, SLESS_FAULTS=f"{point}=kill") as first:
        function = await place.create("hello", HELLO)
        await first.died()
        (started,) = [folder.name for folder in place.instance_folders]
        async with followed_process(place, caller):
            await place.ready("hello")
            assert caller.serving(function.uid) == {started}
            assert [folder.name for folder in place.instance_folders] == [started]


@pytest.mark.parametrize(
    "point", ["runtime_manager.after_start_before_publish", "runtime_manager.after_publish_before_ready"]
)
async def test_killed_in_the_midst_of_a_switch_its_successor_finishes_it_and_no_call_is_dropped(
    place: Place, caller: Caller, point: str
) -> None:
    async with followed_process(place, caller, SLESS_FAULTS=f"{point}=kill@2") as first:
        function = await place.create("hello", HELLO, replicas=ONE)
        await place.ready("hello")
        (old,) = caller.serving(function.uid)
        async with steady_calls(caller, function.uid):
            await place.update("hello", env_vars={"WHO": "new"})
            await first.died()
            async with followed_process(place, caller):
                await place.ready("hello")
                assert (await caller.call(function.uid))["env"] == "new"
                await until(lambda: len(place.instance_folders) == 1, "the old one is gone")
                assert old not in caller.serving(function.uid)


async def test_killed_before_it_reports_the_end_of_a_deleted_function_its_successor_reports(
    place: Place, registry: RunningRegistry
) -> None:
    with a_process(place, SLESS_FAULTS="runtime_manager.before_finalized=kill") as first:
        function = await place.create("hello", HELLO, replicas=ONE)
        await place.ready("hello")
        await place.delete("hello")
        await first.died()
        await registry.service("builder").ReportFinalized(ReportFinalizedRequest(function_uid=function.uid))
        assert (await registry.store.function_by_uid(function.uid)).function is not None

        async def purged() -> bool:
            return (await registry.store.function_by_uid(function.uid)).function is None

        with a_process(place):
            await until(purged, "the registry has forgotten it")


async def test_a_launcher_that_dies_takes_instances_with_it_and_they_come_back_with_the_next(
    place: Place, caller: Caller
) -> None:
    async with followed_process(place, caller):
        function = await place.create("hello", HELLO, replicas=ONE)
        await place.ready("hello")
        lost = caller.serving(function.uid)
        await asyncio.to_thread(place.launcher.stop)
        await until(lambda: not caller.serving(function.uid), "the lost ones are withdrawn", 10)
        with running_launcher(place.launcher.conditions, keep=place.launcher.base, socket_path=place.launcher.socket):
            await until(lambda: caller.serving(function.uid) - lost, "others serve", 30)
            assert (await caller.call(function.uid))["instance"] not in lost


async def test_only_the_invoker_may_call(place: Place) -> None:
    forged = IdentitySigner(new_identity_keys("invoker").private["invoker"], "invoker")
    callers = [
        (None, Unauthenticated),
        (ServiceIdentity(forged, "invoker", SERVICE), Unauthenticated),
        (place.service("gateway"), PermissionDenied),
        (place.service("stranger"), PermissionDenied),
        (place.user(), PermissionDenied),
        (place.user("admin"), PermissionDenied),
    ]
    with a_process(place):
        for identity, refused in callers:
            async with place.channel(identity) as channel:
                stub = RuntimeManagerServiceStub(channel.channel)
                with pytest.raises(refused):
                    await stub.EnsureInstances(pb.EnsureInstancesRequest(function_uid="f", concurrency=1))
                with pytest.raises(refused):
                    await stub.WatchInstances(iter([pb.WatchInstancesRequest()])).read()
        async with place.channel(place.service("invoker")) as channel:
            stub = RuntimeManagerServiceStub(channel.channel)
            with pytest.raises(NotFound):
                await stub.EnsureInstances(pb.EnsureInstancesRequest(function_uid="f", concurrency=1))
