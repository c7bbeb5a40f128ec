"""What the platform fails at is tried again, and said; only what the user must mend is the user's failure."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sless.registry.v1 import registry_pb2
from sless_builder.adapters.layer_folder import FolderLayerSink

from tests.support import archives
from tests.support.builder import BUILT, FAILED, BuilderClient, BuilderPlace, builder_process, running_builder, until

BUILDING = registry_pb2.VERSION_STATE_BUILDING


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No layer can be stored within the block."""

    async def put(_sink: FolderLayerSink, _digest: str, _tar: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(FolderLayerSink, "put", put)
        yield


@pytest.mark.fault(11)
async def test_a_full_disk_is_waited_for_and_told_to_the_versions_owner(
    builder: BuilderClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with full_disk(monkeypatch):
        await builder.upload(archives.handler())

        async def told() -> bool:
            version, function = await builder.version(1), await builder.function()
            return (
                version.message.startswith("waiting to try again: the disk is full (attempt ")
                and (version.state, version.HasField("error")) == (BUILDING, False)
                and (function.phase, function.message) == (registry_pb2.PHASE_BUILDING, version.message)
            )

        await until(told, "version and function say what is waited for")
    built = await builder.ended()
    assert (built.state, built.message) == (BUILT, "built")
    assert built.attempt > 1
    assert "the platform failed (the disk is full)" in await builder.log()


@pytest.mark.fault(11)
async def test_a_platform_that_fails_for_too_long_says_that_it_was_the_platform(
    place: BuilderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_builder(place, SLESS_BUILD_RETRY_SEC=1) as builder:
        await builder.create()
        with full_disk(monkeypatch):
            await builder.upload(archives.handler())
            version = await builder.ended()
    assert (version.state, version.error.reason) == (FAILED, "PLATFORM_FAILED")
    assert "last: the disk is full" in version.error.message


@pytest.mark.fault(11)
async def test_a_build_with_which_builders_are_lost_again_and_again_ends(place: BuilderPlace) -> None:
    client = BuilderClient(place)
    await client.create()
    async with builder_process(place, SLESS_FAULTS="builder.build.claimed=kill") as doomed:
        await client.upload(archives.handler())
        await doomed.killed()
    await place.rows("UPDATE builds SET takeovers = 5, lease_until = now() - interval '1 s'")
    async with builder_process(place):
        version = await client.ended()
    assert (version.state, version.error.reason) == (FAILED, "BUILD_ABANDONED")
    await client.close()
