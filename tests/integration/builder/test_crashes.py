"""kill -9 of a real builder at each moment that matters: one build, one layer, one outcome a version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from sless.builder.v1 import builder_pb2 as pb
from sless.registry.v1 import registry_pb2
from sless_platform.errors import PlatformError

from tests.support import archives
from tests.support.builder import (
    BUILT,
    BuilderClient,
    BuilderPlace,
    builder_place,
    builder_process,
    new_request_id,
    until,
)
from tests.support.package_index import package_index
from tests.support.postgres import ServiceDatabase
from tests.support.registry import VERSIONS, RunningRegistry, running_registry


@dataclass
class History:
    """Every state of every version that the registry has told of."""

    states: dict[tuple[str, int], list[registry_pb2.VersionState.ValueType]] = field(default_factory=dict)

    def note(self, batch: registry_pb2.WatchResponse) -> None:
        for change in batch.changes:
            if change.HasField("version"):
                version = change.version
                self.states.setdefault((version.name, version.version), []).append(version.state)


@asynccontextmanager
async def history_of(registry: RunningRegistry) -> AsyncIterator[History]:
    history = History()

    async def follow() -> None:
        call = registry.service("runtime-manager").Watch()
        await call.write(
            registry_pb2.WatchRequest(start=registry_pb2.WatchStart(resource_types=VERSIONS, snapshot=True))
        )
        async for batch in call:
            history.note(batch)

    task = asyncio.create_task(follow())
    try:
        yield history
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def uploaded(client: BuilderClient, archive: bytes, request_id: str, name: str = "hello") -> bool:
    """Whether the builder answered: it may be killed before."""
    try:
        await client.upload(archive, name, request_id=request_id)
    except PlatformError:
        return False
    return True


async def settled(place: BuilderPlace) -> None:
    async def nothing_open() -> bool:
        open_builds = await place.rows("SELECT FROM builds WHERE unreported OR state IN ('pending', 'building')")
        return not open_builds and await place.count("garbage") == 0 and not place.leftovers()

    await until(nothing_open, "all is built, reported and cleaned up")


ONCE = frozenset({1})
# At some points the worker goes on beside what is killed: its sandbox may be running just then, and has to run again.
PERHAPS_KILLED_WITH_IT = frozenset({1, 2})
# How often the sandbox may have run in all, when the builder is killed there once.
POINTS = {
    "builder.upload.after_store": ONCE,
    "builder.upload.after_create_version": PERHAPS_KILLED_WITH_IT,
    "builder.queue.after_insert": PERHAPS_KILLED_WITH_IT,
    "builder.build.claimed": ONCE,
    "builder.report.building_told": PERHAPS_KILLED_WITH_IT,
    "builder.build.before_layer_store": frozenset(
        {2}
    ),  # what it made was never stored: it is made again, and is the same
    "builder.build.after_layer_store": ONCE,
    "builder.build.after_result_commit": ONCE,
    "builder.report.before_ack": ONCE,
    "builder.report.after_ack": ONCE,
}


# The same where packages are installed: that is one run more. What was compiled is stored before it begins.
BOTH = frozenset({2})
ONE_PERHAPS_KILLED = frozenset({2, 3})
POINTS_OF_DEPENDENCIES = {
    "builder.upload.after_store": BOTH,
    "builder.upload.after_create_version": ONE_PERHAPS_KILLED,
    "builder.queue.after_insert": ONE_PERHAPS_KILLED,
    "builder.build.claimed": BOTH,
    "builder.report.building_told": ONE_PERHAPS_KILLED,
    "builder.dependencies.before_layer_store": frozenset({3}),  # what was installed was never stored
    "builder.dependencies.after_layer_store": BOTH,
    "builder.build.before_layer_store": BOTH,
    "builder.build.after_layer_store": BOTH,
    "builder.build.after_result_commit": BOTH,
    "builder.report.before_ack": BOTH,
    "builder.report.after_ack": BOTH,
}


@pytest.mark.fault(14)
@pytest.mark.fault(42)
@pytest.mark.timeout(300)
async def test_a_version_is_built_once_wherever_its_builder_is_killed(service_database: ServiceDatabase) -> None:
    await check_kills(service_database, POINTS, archives.handler(), made=1)


@pytest.mark.fault(14)
@pytest.mark.fault(42)
@pytest.mark.timeout(300)
async def test_a_version_with_dependencies_is_built_once_wherever_its_builder_is_killed(
    service_database: ServiceDatabase,
) -> None:
    handler = "import alpha\n\ndef handle(event):\n    return alpha.VERSION\n"
    archive = archives.zip_of({"handler.py": handler, "requirements.txt": "alpha\n"})
    with package_index() as index:
        index.add_wheel("alpha", "1.0")
        env = json.dumps({"UV_DEFAULT_INDEX": index.url})
        await check_kills(service_database, POINTS_OF_DEPENDENCIES, archive, made=2, SLESS_INSTALL_ENV=env)


async def check_kills(
    service_database: ServiceDatabase, points: Mapping[str, frozenset[int]], archive: bytes, made: int, **variables: str
) -> None:
    """Kill a builder at each point. `made`: how many layers the version has that are not the runtime's."""
    # Each has a world of its own; together, because most of the time leases are waited for.
    at_once = asyncio.Semaphore(4)

    async def killed_at(point: str) -> None:
        async with (
            at_once,
            running_registry() as registry,
            registry.invoker(),
            builder_place(registry, service_database) as place,
        ):
            place.variables.update(variables)
            await check_kill(place, point, archive, points[point], made)

    outcomes = await asyncio.gather(*(killed_at(point) for point in points), return_exceptions=True)
    failed = {point: repr(outcome) for point, outcome in zip(points, outcomes, strict=True) if outcome is not None}
    assert not failed


async def check_kill(place: BuilderPlace, point: str, archive: bytes, runs: frozenset[int], made: int) -> None:
    client, request_id = BuilderClient(place), new_request_id()
    await client.create()
    async with history_of(place.registry) as history:
        async with builder_process(place, SLESS_FAULTS=f"{point}=kill") as doomed:
            answered = await uploaded(client, archive, request_id)
            await doomed.killed()
        async with builder_process(place) as successor:
            if not answered:
                assert await uploaded(client, archive, request_id), "the same request, sent again"
            version = await client.ended()
            assert version.state == BUILT, version.message
            await settled(place)
            await check_one_build(client, version, runs, made)
            assert await successor.stop() == 0
        check_history(history.states["hello", 1])
    await client.close()


async def check_one_build(
    client: BuilderClient, version: registry_pb2.Version, runs: frozenset[int], made: int
) -> None:
    place = client.place
    with pytest.raises(PlatformError):
        await client.version(2)
    (build,) = await place.rows("SELECT state, runs, attempt, reported_attempt FROM builds")
    assert build["state"] == "built"
    assert build["runs"] in runs
    assert build["attempt"] == build["reported_attempt"] == version.attempt <= 2
    layers = await place.rows("SELECT digest, made FROM layers")
    # One layer may be found by several things that it was made from.
    assert {layer["digest"] for layer in layers} == set(version.layers[1:])
    assert sum(layer["made"] for layer in layers) == len(version.layers) - 1 == made
    assert place.layer_names() == set(version.layers)
    assert {name.split("/")[0]: 0 for name in place.object_names()} == {"code": 0, "layers": 0, "images": 0}
    assert place.object_names("layers/") == {f"layers/sha256/{digest[7:]}" for digest in version.layers}
    assert place.object_names("code/") == {f"code/sha256/{version.code_sha256}"}
    assert len(place.object_names("images/")) == 2
    log = await client.log(follow=True)
    assert log.count("built: ") == 1


def check_history(states: list[registry_pb2.VersionState.ValueType]) -> None:
    """Forward only, and to one end."""
    order = [registry_pb2.VERSION_STATE_PENDING, registry_pb2.VERSION_STATE_BUILDING, BUILT]
    told = [order.index(state) for state in states]
    assert told == sorted(told)
    assert told.count(2) >= 1


@pytest.mark.fault(14)
async def test_killed_again_and_again_every_upload_ends_built_once(place: BuilderPlace) -> None:
    client = BuilderClient(place)
    names = [f"fn-{number}" for number in range(6)]
    for name in names:
        await client.create(name)
    requests = {name: new_request_id() for name in names}
    codes = {name: archives.handler(f"X = {number % 3}\n" * 50) for number, name in enumerate(names)}
    open_uploads = set(names)
    for pause in (0.05, 0.2, 0.4):
        async with builder_process(place) as builder:
            uploads = asyncio.gather(
                *(uploaded(client, codes[name], requests[name], name) for name in sorted(open_uploads))
            )
            await asyncio.sleep(pause)  # not to wait for something, but to be killed anywhere
            await builder.kill()
            open_uploads -= {name for name, done in zip(sorted(open_uploads), await uploads, strict=True) if done}
    async with builder_process(place):
        for name in sorted(open_uploads):
            assert await uploaded(client, codes[name], requests[name], name)
        versions = [await client.ended(1, name) for name in names]
        assert [version.state for version in versions] == [BUILT] * 6
        await settled(place)
        assert await place.count("builds") == 6
        assert len({version.layers[1] for version in versions}) == 3
        assert place.layer_names() == {digest for version in versions for digest in version.layers}
        assert len(place.object_names("layers/")) == 4
    await client.close()


async def test_sigterm_gives_a_build_back_at_once(place: BuilderPlace) -> None:
    client = BuilderClient(place)
    await client.create()
    async with builder_process(place, SLESS_PYTHON311=str(place.gated_python())) as builder:
        await client.upload(archives.handler())

        async def building() -> bool:
            return bool(await place.rows("SELECT FROM builds WHERE state = 'building'"))

        await until(building, "the build has begun")
        assert await builder.stop() == 0
    (build,) = await place.rows("SELECT state, failures, lease_owner FROM builds")
    assert build == {"state": "pending", "failures": 0, "lease_owner": None}
    assert place.leftovers() == []
    async with builder_process(place):
        assert (await client.ended()).state == BUILT
    await client.close()


def test_upload_response_has_the_fields_of_the_registrys_answer() -> None:
    mine, theirs = pb.UploadCodeResponse.DESCRIPTOR, registry_pb2.CreateVersionResponse.DESCRIPTOR
    assert [(f.number, f.name, f.type, f.message_type) for f in mine.fields] == [
        (f.number, f.name, f.type, f.message_type) for f in theirs.fields
    ]
