"""The lowest layer of every image: the runtime, made once for what is in it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

from sless_platform.objects import ObjectStore

from sless_builder.application.compiling import pyc_path
from sless_builder.application.finishing import in_thread
from sless_builder.application.storing import LayerStoring
from sless_builder.domain.layers import LAYOUT, Layer, LayerFile, object_key, write_layer
from sless_builder.ports import Compiler, LayerSink, Module, RuntimeFile, Runtimes, Workspace


class BaseLayers:
    """Base layers by runtime. A runtime that changes on disk gets a new one with the next build."""

    def __init__(
        self, *, runtimes: Runtimes, compiler: Compiler, workspace: Workspace, objects: ObjectStore, sink: LayerSink
    ) -> None:
        self._runtimes = runtimes
        self._compiler = compiler
        self._workspace = workspace
        self._storing = LayerStoring(objects=objects, sink=sink)
        self._known: dict[str, Layer] = {}
        self._making = asyncio.Lock()

    def keys(self) -> frozenset[str]:
        """The objects of the current base layers: the next build needs them, whether or not a build names them now."""
        return frozenset(object_key(layer.digest) for layer in self._known.values())

    async def layer(self, runtime: str) -> Layer:
        """The runtime's layer; its bytes may still have to be stored. Raises FailedPrecondition when the runtime is not there."""
        files = await self._runtimes.files(runtime)
        known = self._known.get(runtime)
        if known is not None and known.key == _key(runtime, files):
            return known
        return await self.store(runtime)

    async def store(self, runtime: str) -> Layer:
        """The runtime's layer, stored and where instances find it."""
        async with self._making:
            files = await self._runtimes.files(runtime)
            known = self._known.get(runtime)
            if known is not None and known.key == _key(runtime, files) and await self._storing.has(known):
                return known
            async with self._workspace.folder() as folder:
                made = await self._made(runtime, files, folder / "base.tar")
                await self._storing.put(made, folder / "base.tar")
        self._known[runtime] = made
        return made

    async def _made(self, runtime: str, files: Sequence[RuntimeFile], tar: Path) -> Layer:
        entries = [*files, *await self._compiled(files)]

        def write() -> tuple[str, int]:
            with tar.open("wb") as out:
                return write_layer(out, [_entry(file) for file in entries])

        digest, size = await in_thread(write)
        return Layer(_key(runtime, files), digest, size)

    async def _compiled(self, files: Sequence[RuntimeFile]) -> list[RuntimeFile]:
        compiled = []
        async with self._compiler.session() as session:
            for file in files:
                if file.path.endswith(".py"):
                    module = await session.compile(file.path, file.content)
                    if isinstance(module, Module):
                        compiled.append(RuntimeFile(pyc_path(file.path), module.pyc))
        return compiled


def _key(runtime: str, files: Sequence[RuntimeFile]) -> str:
    digest = hashlib.sha256(f"base\n{LAYOUT}\n{runtime}\n".encode())
    for file in files:
        digest.update(f"{file.path}\n{file.executable}\n{len(file.content)}\n".encode() + file.content)
    return digest.hexdigest()


def _entry(file: RuntimeFile) -> LayerFile:
    return LayerFile(file.path, len(file.content), file.executable, lambda: (file.content,))
