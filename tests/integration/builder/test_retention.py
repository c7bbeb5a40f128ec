"""Versions that are kept no more take with them what nobody else needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sless.registry.v1 import registry_pb2

from tests.support import archives
from tests.support.builder import BUILT, BuilderClient, BuilderPlace, builder_place, running_builder, sha256_of, until
from tests.support.postgres import ServiceDatabase
from tests.support.registry import NAMESPACE, POLICY, RunningRegistry, running_registry


def code(number: int) -> bytes:
    """An archive that differs with the number."""
    return archives.zip_of({"handler.py": f"def handle(event):\n    return {number}\n"})


async def upload(builder: BuilderClient, archive: bytes, name: str = "hello") -> registry_pb2.Version:
    """A version, built."""
    number = (await builder.upload(archive, name)).version.version
    version = await builder.ended(number, name)
    assert version.state == BUILT, version.message
    return version


async def served(registry: RunningRegistry, name: str = "hello") -> None:
    """The newest version serves."""
    assert await registry.report(await registry.get(name))


async def gone(place: BuilderPlace, version: registry_pb2.Version) -> None:
    """Nothing is left of a version's own."""

    async def nothing() -> bool:
        rows = await place.rows("SELECT version_uid FROM builds WHERE version_uid = $1", version.uid)
        layers = {version.layers[-1]} & place.layer_names()
        objects = {f"layers/sha256/{version.layers[-1].removeprefix('sha256:')}", f"code/sha256/{version.code_sha256}"}
        return not rows and not layers and not objects & place.object_names()

    await until(nothing, f"version {version.version} leaves nothing")


async def test_what_only_a_dropped_version_needed_goes_and_shared_layers_stay(
    service_database: ServiceDatabase,
) -> None:
    async with (
        running_registry(policy=replace(POLICY, versions_kept=2)) as registry,
        registry.invoker(),
        builder_place(registry, service_database) as place,
        running_builder(place) as builder,
    ):
        await builder.create()
        await builder.create("other")
        shared = await upload(builder, code(1))
        await served(registry)
        await upload(builder, code(1), "other")
        alone = await upload(builder, code(2))
        await served(registry)
        third = await upload(builder, code(3))
        await served(registry)
        newest = await upload(builder, code(4))

        await gone(place, alone)

        kept = await registry.user().ListVersions(registry_pb2.ListVersionsRequest(namespace=NAMESPACE, name="hello"))
        assert [version.version for version in kept.versions] == [4, 3]
        assert {shared.layers[-1], third.layers[-1], newest.layers[-1]} <= place.layer_names()
        assert f"code/sha256/{sha256_of(code(1))}" in place.object_names()
        assert {row["number"] for row in await place.rows("SELECT number FROM builds WHERE name = 'hello'")} == {3, 4}
        assert (await upload(builder, code(1), "other")).version == 1
        rebuilt = await upload(builder, code(1))
        assert rebuilt.cached


@pytest.mark.fault(13)
async def test_versions_that_were_dropped_while_the_builder_was_away_go_when_it_is_back(
    service_database: ServiceDatabase,
) -> None:
    policy = replace(POLICY, versions_kept=1, events_kept=1)
    async with (
        running_registry(policy=policy) as registry,
        registry.invoker(),
        builder_place(registry, service_database) as place,
    ):
        async with running_builder(place) as builder:
            await builder.create()
            first = await upload(builder, code(1))
            await served(registry)
        for number in ("2", "3"):
            await registry.built((await registry.upload(code=number)).version)
            await served(registry)
        await registry.store.trim(events_kept=1, answers_before=datetime.now(UTC))

        async with running_builder(place):
            await gone(place, first)
