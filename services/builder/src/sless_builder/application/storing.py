"""Puts a layer where it is needed: its tar in the object store, its files where instances start from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from sless_platform.objects import ObjectStore
from sless_platform.telemetry import spanned

from sless_builder.application.finishing import in_thread, to_its_end, together
from sless_builder.domain.layers import Layer, object_key
from sless_builder.ports import LayerSink

_CHUNK_BYTES: Final = 1 << 20


class LayerStoring:
    """Stores layers. Call it only for layers whose object is named by a build, or kept."""

    def __init__(self, *, objects: ObjectStore, sink: LayerSink) -> None:
        self._objects = objects
        self._sink = sink

    async def has(self, layer: Layer) -> bool:
        """Whether the layer is in both places."""
        return await self._objects.exists(object_key(layer.digest)) and await self._sink.has(layer.digest)

    @spanned("store layer")
    async def put(self, layer: Layer, tar: Path) -> None:
        """Store the layer from its tar; nothing happens where it is already."""
        await together(self._put_object(object_key(layer.digest), tar), self._sink.put(layer.digest, tar))

    async def restore(self, layer: Layer, tar: Path) -> bool:
        """Whether the layer is in both places now: its tar is fetched (to `tar`) if only that is left."""
        key = object_key(layer.digest)
        if not await self._objects.exists(key):
            return False
        if not await self._sink.has(layer.digest):
            await fetch(self._objects, key, tar)
            await to_its_end(self._sink.put(layer.digest, tar))
        return True

    async def _put_object(self, key: str, tar: Path) -> None:
        if not await self._objects.exists(key):
            await self._objects.put(key, _chunks(tar))


async def fetch(objects: ObjectStore, key: str, path: Path) -> None:
    """Write an object to a file. Raises ObjectNotFound."""
    with path.open("wb") as file:
        async for chunk in objects.get(key):
            await in_thread(file.write, chunk)


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield chunk
