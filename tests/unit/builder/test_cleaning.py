"""The clean-up."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sless_builder.adapters.memory_store import MemoryBuildStore
from sless_builder.adapters.signals import LocalSignals
from sless_builder.application.cleaning import Cleaner
from sless_builder.domain.layers import archive_key
from sless_builder.ports import Changes
from sless_platform.errors import Unavailable

from tests.support.builds import (
    F1,
    RESULT,
    SOURCE,
    FakeRegistry,
    MemoryObjects,
)


class MemorySink:
    """Where layers are."""

    def __init__(self, *digests: str) -> None:
        self.digests = set(digests)
        self.swept = 0

    async def has(self, digest: str) -> bool:
        return digest in self.digests

    async def put(self, digest: str, tar: Path) -> None:
        self.digests.add(digest)

    async def remove(self, digest: str) -> None:
        self.digests.discard(digest)

    async def sweep(self) -> None:
        self.swept += 1


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Cleaning:
    clock: Clock = field(default_factory=Clock)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    sink: MemorySink = field(default_factory=MemorySink)
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    base: str = "layers/sha256/base"

    def __post_init__(self) -> None:
        signals = LocalSignals()
        self.store = MemoryBuildStore(signals, self.clock)
        self.cleaner = Cleaner(
            registry=self.registry,
            store=self.store,
            objects=self.objects,
            sink=self.sink,
            leftovers=(self.sink,),
            signals=signals,
            kept=lambda: frozenset({self.base}),
            may_sweep=lambda: True,
            layers_kept=timedelta(0),
        )

    async def built(self) -> None:
        await self.store.apply(Changes(1, wanted=((SOURCE, 0),)))
        claim = await self.store.claim("me", timedelta(seconds=30))
        assert claim is not None
        self.objects.keys |= {archive_key("c1"), self.base, "layers/sha256/code"}
        self.sink.digests |= {"sha256:base", "sha256:code"}
        await self.store.hold(claim, [self.base, "layers/sha256/code"], None)
        await self.store.finish(claim, RESULT, "", "")


async def test_a_deleted_functions_objects_go_before_it_is_reported_and_the_base_layer_stays() -> None:
    world = Cleaning()
    await world.built()
    await world.store.apply(Changes(2, deleted=(F1,)))
    await world.cleaner.clean()
    assert world.registry.finalized == [F1]
    assert world.objects.keys == {world.base}
    assert world.sink.digests == {"sha256:base"}
    assert await world.store.deletions() == []


async def test_a_deletion_is_reported_again_until_the_registry_has_it() -> None:
    world = Cleaning()
    await world.built()
    await world.store.apply(Changes(2, deleted=(F1,)))
    world.registry.away = 1
    with pytest.raises(Unavailable):
        await world.cleaner.clean()
    await world.cleaner.clean()
    assert world.registry.finalized == [F1]


async def test_objects_that_nothing_names_go_after_a_day_and_not_before() -> None:
    world = Cleaning()
    await world.built()
    named = set(world.objects.keys)
    world.objects.keys |= {"code/sha256/stray", "layers/sha256/stray", "other/thing"}
    world.sink.digests.add("sha256:stray")
    await world.store.begin_upload(uuid.uuid4(), F1, "code/sha256/uploading")
    world.objects.keys.add("code/sha256/uploading")
    await world.cleaner.sweep()
    world.clock.now += timedelta(hours=23)
    await world.cleaner.clean()
    assert "code/sha256/stray" in world.objects.keys
    world.clock.now += timedelta(hours=2)
    await world.cleaner.clean()
    assert world.objects.keys == named | {"other/thing", "code/sha256/uploading"}
    assert world.sink.digests == {"sha256:base", "sha256:code"}
    assert world.sink.swept == 1
    await world.cleaner.sweep()
    world.clock.now += timedelta(hours=25)
    await world.cleaner.clean()
    assert world.objects.keys == named | {"other/thing"}, "its upload was forgotten, and then the object was suspected"


async def test_an_object_that_gets_a_name_while_it_is_suspected_stays() -> None:
    world = Cleaning()
    world.objects.keys.add(archive_key("c1"))
    await world.cleaner.sweep()
    await world.store.apply(Changes(1, wanted=((SOURCE, 0),)))
    world.clock.now += timedelta(hours=25)
    await world.cleaner.clean()
    assert world.objects.keys == {archive_key("c1")}
