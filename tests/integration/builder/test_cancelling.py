"""A build that nobody wants any more stops, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sless.builder.v1 import builder_pb2 as pb
from sless_builder.errors import LogNotFound
from sless_platform.errors import NotFound, PermissionDenied

from tests.support import archives
from tests.support.builder import BUILT, CANCELLED, BuilderClient, BuilderPlace, running_builder, until
from tests.support.registry import NAMESPACE, OTHER_SUB, RunningRegistry


@pytest.fixture
async def gated(place: BuilderPlace) -> AsyncIterator[BuilderClient]:
    """A builder whose sandbox waits for `place.gate`; its base layer is made already."""
    python = place.gated_python()
    place.gate.touch()
    # Without a sandbox made in advance: each that runs here is a build's.
    async with running_builder(place, without="sandbox", SLESS_PYTHON311=str(python)) as client:

        async def based() -> bool:
            return len(place.layer_names()) == 1

        await until(based, "the base layer is made")
        await place.idle()
        place.gate.unlink()
        await client.create()
        yield client


def sandboxes(place: BuilderPlace) -> list[int]:
    """Processes that run this place's interpreter."""
    name = str(place.folder / "gated" / "gated-python").encode()
    found = []
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            try:
                if name in (proc / "cmdline").read_bytes():
                    found.append(int(proc.name))
            except OSError:
                continue
    return found


async def in_sandbox(place: BuilderPlace) -> None:
    async def runs() -> bool:
        return bool(sandboxes(place))

    await until(runs, "the sandbox runs")


async def no_sandbox(place: BuilderPlace) -> None:
    async def none() -> bool:
        return not sandboxes(place)

    await until(none, "the sandbox is gone")
    await place.idle()


async def purged(registry: RunningRegistry, place: BuilderPlace, function_uid: str) -> None:
    async def is_gone() -> bool:
        return await place.count("deletions") == 0

    await until(is_gone, f"function {function_uid} is cleaned up after")


@pytest.mark.fault(13)
async def test_deleting_a_function_stops_its_build_and_leaves_nothing(
    gated: BuilderClient, registry: RunningRegistry
) -> None:
    place = gated.place
    base = place.layer_names()
    uploaded = await gated.upload(archives.handler())
    await in_sandbox(place)
    await gated.delete()
    await no_sandbox(place)
    await purged(registry, place, uploaded.function.uid)
    place.gate.touch()
    for table in ("builds", "build_log", "layers", "uploads", "deletions", "garbage"):
        assert await place.count(table) == 0, table
    assert place.object_names("code/") | place.object_names("images/") == set()
    assert place.layer_names() == base
    with pytest.raises(NotFound):
        await gated.log()


@pytest.mark.fault(13)
async def test_deleting_a_built_function_removes_what_is_its_own_alone(
    gated: BuilderClient, registry: RunningRegistry
) -> None:
    place = gated.place
    place.gate.touch()
    await gated.create("twin")
    await gated.upload(archives.handler())
    await gated.upload(archives.handler("own = 1\n"), "twin")
    own = await gated.ended(1, "twin")
    await gated.upload(archives.handler(), "twin")
    shared = await gated.ended()
    assert list((await gated.ended(2, "twin")).layers) == list(shared.layers)
    await gated.delete("twin")

    async def only_shared() -> bool:
        return place.layer_names() == set(shared.layers)

    await until(only_shared, "the twin's own layer is removed")
    await purged(registry, place, own.function_uid)
    assert place.object_names("code/") == {f"code/sha256/{shared.code_sha256}"}
    assert await place.count("builds") == 1
    assert len(place.object_names("images/")) == 2
    await gated.delete()

    async def nothing() -> bool:
        return (
            not place.object_names("code/") and not place.object_names("images/") and await place.count("builds") == 0
        )

    await until(nothing, "the last function's code is removed")


@pytest.mark.fault(14)
async def test_a_newer_upload_stops_the_older_ones_build(gated: BuilderClient) -> None:
    place = gated.place
    await gated.upload(archives.handler("x = 1\n"))
    await in_sandbox(place)
    first = set(sandboxes(place))
    await gated.upload(archives.handler("x = 2\n"))
    assert (await gated.ended(1)).state == CANCELLED

    async def stopped() -> bool:
        return not first & set(sandboxes(place))

    await until(stopped, "the older build's sandbox is gone")
    place.gate.touch()
    newer = await gated.ended(2)
    assert newer.state == BUILT
    rows = await place.rows("SELECT number, state, cardinality(objects) AS objects FROM builds ORDER BY number")
    assert [(row["number"], row["state"]) for row in rows] == [(1, "cancelled"), (2, "built")]
    assert rows[0]["objects"] == 1, "its archive, which is a version's source, and nothing else"
    assert len(place.object_names("layers/")) == 2
    await place.idle()


# -- logs


async def test_a_log_is_followed_while_it_is_written_and_ends_with_the_build(gated: BuilderClient) -> None:
    await gated.upload(archives.handler())
    await in_sandbox(gated.place)
    request = pb.GetBuildLogRequest(namespace=NAMESPACE, name="hello", version=1, follow=True)
    call = gated.stub().GetBuildLog(request)
    first = (await asyncio.wait_for(anext(aiter(call)), 30)).text
    assert first.startswith("version 1 of hello: python3.11, handler.handle\narchive: 1 file, ")
    assert first.endswith("\n")
    unfinished = await gated.log()
    assert unfinished == first
    gated.place.gate.touch()
    rest = "".join([part.text async for part in call])
    assert "compiled 1 module in " in rest
    assert "\nbuilt: sless/" in rest
    assert await gated.log() == first + rest


async def test_a_log_can_be_followed_from_before_the_build_is_queued(gated: BuilderClient) -> None:
    gated.place.gate.touch()
    await gated.upload(archives.handler())
    assert (await gated.log(follow=True)).splitlines()[-1].startswith("built: ")


async def following(builder: BuilderClient, number: int) -> AsyncIterator[str]:
    """The parts of a log that is followed, after the first, which has been read."""
    request = pb.GetBuildLogRequest(namespace=NAMESPACE, name="hello", version=number, follow=True)
    call = builder.stub().GetBuildLog(request, timeout=30)
    await anext(aiter(call))
    return (part.text async for part in call)


async def test_a_followed_log_ends_with_why_the_build_was_cancelled(gated: BuilderClient) -> None:
    await gated.upload(archives.handler())
    await in_sandbox(gated.place)
    rest = await following(gated, 1)

    await gated.upload(archives.handler("second = 2\n"))

    assert [text async for text in rest] == ["cancelled: version 2 came after it\n"]
    assert (await gated.log(1)).splitlines()[-1] == "cancelled: version 2 came after it"
    gated.place.gate.touch()
    await gated.ended(2)


async def test_a_followed_log_ends_when_the_function_is_deleted(
    gated: BuilderClient, registry: RunningRegistry
) -> None:
    uploaded = await gated.upload(archives.handler())
    await in_sandbox(gated.place)
    rest = await following(gated, 1)

    await gated.delete()

    assert "".join([text async for text in rest]) == ""
    await purged(registry, gated.place, uploaded.function.uid)


async def test_a_version_that_was_cancelled_before_its_build_was_queued_says_why(place: BuilderPlace) -> None:
    async with running_builder(place, without="follower") as builder:
        await builder.create()
        await builder.upload(archives.handler())
        follower = asyncio.create_task(builder.log(1, follow=True))
        await builder.upload(archives.handler("second = 2\n"))

        assert await asyncio.wait_for(follower, 30) == "cancelled: version 2 came after it\n"
        assert await builder.log(1) == "cancelled: version 2 came after it\n"


async def test_logs_are_their_owners_alone(gated: BuilderClient) -> None:
    gated.place.gate.touch()
    await gated.upload(archives.handler())
    await gated.ended()
    with pytest.raises(PermissionDenied):
        await gated.log(sub=OTHER_SUB)
    with pytest.raises(NotFound):
        await gated.log(2)


async def test_a_version_without_a_log_says_so(gated: BuilderClient) -> None:
    gated.place.gate.touch()
    await gated.upload(archives.handler())
    await gated.ended()
    await gated.place.rows("DELETE FROM builds")
    with pytest.raises(NotFound) as missing:
        await gated.log(follow=True)
    assert missing.value.reason == LogNotFound.reason
