"""One build: from an archive in the object store to layers, and an image that names them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Final

from sless_platform.errors import FailedPrecondition
from sless_platform.faults import fault_point
from sless_platform.objects import ObjectStore

from sless_builder.application.base_layers import BaseLayers
from sless_builder.application.build_log import BuildLog
from sless_builder.application.compiling import Compiled, Compiling
from sless_builder.application.finishing import in_thread, to_its_end, together
from sless_builder.application.installing import Code, Dependencies, Provided
from sless_builder.application.storing import LayerStoring, fetch
from sless_builder.domain.archive import ArchiveFile, ArchiveInspector, read
from sless_builder.domain.build import Claim, Problem, Result, Source, UserError
from sless_builder.domain.entrypoint import find_module, missing
from sless_builder.domain.image import Image, image_of
from sless_builder.domain.imports import Imports
from sless_builder.domain.layers import Layer, LayerFile, archive_key, code_key, object_key, write_layer
from sless_builder.ports import Queue, Workspace

_WARNINGS: Final = 20


@dataclass(frozen=True, slots=True)
class _Code(Code):
    """An archive on disk, and which of its files is the entrypoint's module."""

    entry_module: str


@dataclass(frozen=True, slots=True)
class _Found:
    """A code layer: one that is known, or one that was made and is to be stored."""

    known: Layer | None
    made: Layer | None


class Building:
    """Builds. Nothing it does is visible before the queue has stored the result; all of it can be done again."""

    def __init__(
        self,
        *,
        queue: Queue,
        objects: ObjectStore,
        storing: LayerStoring,
        workspace: Workspace,
        inspector: ArchiveInspector,
        compiling: Compiling,
        bases: BaseLayers,
        dependencies: Dependencies,
        limit: timedelta,
        architecture: str,
    ) -> None:
        """`limit`: how long the steps of one build may take, all together."""
        self._queue = queue
        self._objects = objects
        self._storing = storing
        self._workspace = workspace
        self._inspector = inspector
        self._compiling = compiling
        self._bases = bases
        self._dependencies = dependencies
        self._limit = limit
        self._architecture = architecture

    async def build(self, claim: Claim, log: BuildLog) -> Result:
        """Build a version, once a content: the layer that was made from the same archive before is taken.

        Raises UserError for what its author must mend, LeaseLost, and anything else for what the platform must.
        """
        source = claim.source
        deadline = asyncio.get_running_loop().time() + self._limit.total_seconds()
        log.line(f"version {source.number} of {source.name}: {source.runtime}, {source.entrypoint}")
        base = await self._base(source)
        async with self._workspace.folder() as folder:
            await fetch(self._objects, archive_key(source.code_sha256), folder / "code.zip")
            with (folder / "code.zip").open("rb") as file:
                code = await self._checked(source, file, folder, log)
                return await self._built(claim, base, code, log, deadline)

    async def _base(self, source: Source) -> Layer:
        try:
            return await self._bases.layer(source.runtime)
        except FailedPrecondition as error:
            raise UserError(Problem("RUNTIME_UNAVAILABLE", error.message)) from error

    async def _checked(self, source: Source, file: BinaryIO, folder: Path, log: BuildLog) -> _Code:
        archive = await in_thread(self._inspector.contents, file)
        log.line(f"archive: {_counted(len(archive.files), 'file')}, {archive.unpacked_bytes:,} bytes unpacked")
        if archive.left_out:
            log.line(f"left out: {_listed(archive.left_out)}")
        module = find_module(source.entrypoint, archive.paths)
        if module is None:
            raise UserError(
                Problem("ENTRYPOINT_NOT_FOUND", f"the code has {missing(source.entrypoint, archive.paths)}")
            )
        return _Code(file, archive, folder, module)

    async def _built(self, claim: Claim, base: Layer, code: _Code, log: BuildLog, deadline: float) -> Result:
        """The code first: what is wrong with it shows before anything is installed for it."""
        key = code_key(claim.source.code_sha256, claim.source.runtime)
        known = await self._queue.layer(key)
        if known is not None:
            _refuse_broken(known.broken, code.entry_module)
        made = None if known is not None else await self._make(claim, key, code, log)
        provided = await self._provided(claim, base, _Found(known, made), code, log=log, deadline=deadline)
        below = (base,) if provided is None else (base, provided.layer)
        if known is not None:
            image = await self._hold(claim, (*below, known), None)
            if await self._storing.restore(known, code.folder / "code.tar"):
                log.line(f"code layer {known.digest} is there already: nothing to build")
                _warn_of_imports(known, code, provided, log)
                await together(self._base_stored(base, claim.source), self._image_stored(image))
                cached = provided is None or provided.cached
                return _result(claim.source, (*below, known), image, cached=cached)
        made = made or await self._make(claim, key, code, log)
        image = await self._hold(claim, (*below, made), made)
        _warn_of_imports(made, code, provided, log)
        fault_point("builder.build.before_layer_store")
        await together(
            self._storing.put(made, code.folder / "code.tar"),
            self._base_stored(base, claim.source),
            self._image_stored(image),
        )
        fault_point("builder.build.after_layer_store")
        return _result(claim.source, (*below, made), image, cached=False)

    async def _provided(
        self, claim: Claim, base: Layer, found: _Found, code: _Code, *, log: BuildLog, deadline: float
    ) -> Provided | None:
        """The dependency layer, if the code asks for one. What was made of the code is stored before: the other may take long."""
        manifest = await self._dependencies.asked_for(code, log)
        if manifest is None:
            return None
        if found.made is not None:
            await self._hold(claim, (base, found.made), found.made)
            await to_its_end(self._storing.put(found.made, code.folder / "code.tar"))
        below = tuple(layer for layer in (base, found.known, found.made) if layer is not None)
        return await self._dependencies.provide(claim, below, code, manifest, log, deadline=deadline)

    async def _make(self, claim: Claim, key: str, code: _Code, log: BuildLog) -> Layer:
        """Run the sandbox and write the layer's tar; nothing of it is stored yet."""
        await self._queue.count_run(claim)
        began = time.monotonic()
        compiled = await self._compiling.compile(code.archive, code.file, code.entry_module, code.folder / "compiled")
        _refuse_broken(compiled.broken, code.entry_module)
        log.line(f"compiled {_counted(len(compiled.files), 'module')} in {_ms_since(began)}")
        for problem in compiled.broken[:_WARNINGS]:
            log.line(f"warning: {problem.message}; importing this file will fail")
        if len(compiled.broken) > _WARNINGS:
            log.line(f"warning: {len(compiled.broken) - _WARNINGS} more files can't be imported")
        began = time.monotonic()
        digest, size = await in_thread(_write_tar, code, compiled)
        log.line(f"code layer {digest} made, {size:,} bytes, in {_ms_since(began)}")
        return Layer(key, digest, size, compiled.broken, facts=compiled.imports.facts())

    async def _hold(self, claim: Claim, layers: tuple[Layer, ...], made: Layer | None) -> Image:
        """Name all objects that the result needs, before any of them is stored."""
        image = image_of(layers, claim.source, self._architecture)
        keys = [*(object_key(layer.digest) for layer in layers), *image.objects]
        await self._queue.hold(claim, keys, made)
        return image

    async def _base_stored(self, base: Layer, source: Source) -> None:
        if not await self._storing.has(base):
            await self._bases.store(source.runtime)

    async def _image_stored(self, image: Image) -> None:
        for key, document in image.objects.items():
            if not await self._objects.exists(key):
                await self._objects.put(key, document)


def _result(source: Source, layers: tuple[Layer, ...], image: Image, *, cached: bool) -> Result:
    return Result(tuple(layer.digest for layer in layers), image.reference(source), cached)


def _write_tar(code: _Code, compiled: Compiled) -> tuple[str, int]:
    files = [_layer_file(code.file, item) for item in code.archive.files]
    with (code.folder / "code.tar").open("wb") as out:
        return write_layer(out, [*files, *compiled.files])


def _layer_file(file: BinaryIO, item: ArchiveFile) -> LayerFile:
    return LayerFile(item.path, item.size, item.executable, lambda: read(file, item))


def _refuse_broken(broken: Sequence[Problem], entry_module: str) -> None:
    """Other files than the entrypoint's may be broken: perhaps nobody imports them."""
    for problem in broken:
        if problem.file == entry_module:
            raise UserError(problem)


def _warn_of_imports(layer: Layer, code: _Code, provided: Provided | None, log: BuildLog) -> None:
    installed = frozenset[str]() if provided is None else provided.modules
    unsatisfied = Imports.of_facts(layer.facts).unsatisfied(code.entry_module, installed)
    for wanted in unsatisfied[:_WARNINGS]:
        log.line(wanted.warning())
    if len(unsatisfied) > _WARNINGS:
        log.line(f"warning: {len(unsatisfied) - _WARNINGS} more imports that nothing has")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(paths[:5]) + more


def _ms_since(began: float) -> str:
    return f"{(time.monotonic() - began) * 1000:.0f} ms"
