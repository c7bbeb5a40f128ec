"""Dependency layers: made once for what is asked for, and shared by all that ask for the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final
from weakref import WeakValueDictionary

from sless_platform.faults import fault_point

from sless_builder.application.build_log import BuildLog
from sless_builder.application.finishing import in_thread, to_its_end
from sless_builder.application.installed import installed_files
from sless_builder.application.storing import LayerStoring
from sless_builder.domain.archive import Archive, read
from sless_builder.domain.build import Claim, UserError
from sless_builder.domain.dependencies import Setting, modules_in
from sless_builder.domain.layers import Layer, object_key, write_layer
from sless_builder.domain.manifest import Manifest
from sless_builder.domain.requirements import manifest_of
from sless_builder.ports import Queue
from sless_builder.ports.installing import Installer, Job, Lock, NeedsSources

_MODULES: Final = "modules"


@dataclass(frozen=True, slots=True)
class Rules:
    """What operators decide.

    allow_indexes  whether an author may name another index.
    allow_sources  whether source distributions are built.
    most_bytes     that a layer may unpack to.
    """

    allow_indexes: bool
    allow_sources: bool
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Code:
    """An archive on disk, and a folder for what is made of it."""

    file: BinaryIO
    archive: Archive
    folder: Path


@dataclass(frozen=True, slots=True)
class Provided:
    """A layer that is stored. `cached`: nothing had to be run for it."""

    layer: Layer
    cached: bool

    @property
    def modules(self) -> frozenset[str]:
        """The names that can be imported from it."""
        return frozenset(self.layer.facts.get(_MODULES, ()))


@dataclass(frozen=True, slots=True)
class _Wish:
    """One build's wish for a layer: what, by which key, and the layers that the build needs as well."""

    claim: Claim
    below: tuple[Layer, ...]
    code: Code
    manifest: Manifest
    key: str
    log: BuildLog
    deadline: float


class Dependencies:
    """Gives builds their dependency layers."""

    def __init__(
        self, *, queue: Queue, storing: LayerStoring, installer: Installer, setting: Setting, rules: Rules
    ) -> None:
        self._queue = queue
        self._storing = storing
        self._installer = installer
        self._setting = setting
        self._rules = rules
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def asked_for(self, code: Code, log: BuildLog) -> Manifest | None:
        """What an archive asks for; None when that is nothing. Raises UserError for what can't be followed."""
        manifest = await in_thread(_manifest, code, self._rules.allow_indexes)
        for warning in manifest.warnings:
            log.line(f"warning: {warning}")
        return manifest if manifest.requirements else None

    async def provide(
        self,
        claim: Claim,
        below: tuple[Layer, ...],
        code: Code,
        manifest: Manifest,
        log: BuildLog,
        *,
        deadline: float,
    ) -> Provided:
        """The layer that is asked for, stored; the claim's build names it, and those `below`.

        Raises UserError for what its author must mend, LeaseLost, and anything else for what the platform must.
        """
        key = self._setting.manifest_key(manifest, claim.source.namespace)
        wish = _Wish(claim, below, code, manifest, key, log, deadline)
        async with self._alone(key):
            return await self._found(wish, key) or await self._made(wish)

    @asynccontextmanager
    async def _alone(self, key: str) -> AsyncIterator[None]:
        """Whoever asks for the same meanwhile waits, and finds what was made."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            yield

    async def _found(self, wish: _Wish, key: str) -> Provided | None:
        """The layer that was made from `key` before, if its bytes are still there; it is the wish's own from now on."""
        known = await self._queue.layer(key)
        if known is None:
            return None
        await self._hold(wish, known, None if key == wish.key else replace(known, key=wish.key))
        if not await self._storing.restore(known, wish.code.folder / "dependencies.tar"):
            return None
        wish.log.line(f"dependency layer {known.digest} is there already: nothing to install")
        return Provided(known, cached=True)

    async def _made(self, wish: _Wish) -> Provided:
        await self._queue.count_run(wish.claim)
        wish.log.line(f"installing {wish.manifest.counted}")
        folder = wish.code.folder / "dependencies"
        job = Job(folder, wish.manifest, self._sources_at_once(wish.manifest), wish.deadline)
        await in_thread(_give_files, job, wish.code)
        job, lock = await self._resolved(job, wish.log)
        lock_key = "" if lock is None else self._lock_key(lock, wish)
        if lock_key and (found := await self._found(wish, lock_key)) is not None:
            return found
        return await self._stored(wish, await self._installed(job, lock, wish.log), lock_key)

    def _sources_at_once(self, manifest: Manifest) -> bool:
        return manifest.wants_sources and self._rules.allow_sources

    def _lock_key(self, lock: Lock, wish: _Wish) -> str:
        return self._setting.lock_key(lock.text, wish.manifest, wish.claim.source.namespace)

    async def _resolved(self, job: Job, log: BuildLog) -> tuple[Job, Lock | None]:
        """The versions to install; None when the manifest itself says all of them. The job may build sources afterwards."""
        if job.manifest.hashed:
            return job, None
        try:
            return job, await self._installer.resolve(job, log.line)
        except NeedsSources as needed:
            job = self._with_sources(job, needed, log)
        return job, await self._installer.resolve(job, log.line)

    async def _installed(self, job: Job, lock: Lock | None, log: BuildLog) -> Path:
        try:
            return await self._installer.install(job, lock, log.line)
        except NeedsSources as needed:
            job = self._with_sources(job, needed, log)
        return await self._installer.install(job, lock, log.line)

    def _with_sources(self, job: Job, needed: NeedsSources, log: BuildLog) -> Job:
        if job.sources or not self._rules.allow_sources:
            raise UserError(needed.problem) from None
        package = needed.problem.package or "a package"
        log.line(f"{package} has no wheel for this platform: it is built from its source")
        return replace(job, sources=True)

    async def _stored(self, wish: _Wish, modules: Path, lock_key: str) -> Provided:
        began = time.monotonic()
        tar = wish.code.folder / "dependencies.tar"
        layer = await in_thread(_written, modules, tar, self._rules.most_bytes)
        layer = replace(layer, key=wish.key)
        await self._hold(wish, layer, layer)
        if lock_key:
            await self._hold(wish, layer, replace(layer, key=lock_key))
        fault_point("builder.dependencies.before_layer_store")
        await to_its_end(self._storing.put(layer, tar))
        fault_point("builder.dependencies.after_layer_store")
        took = (time.monotonic() - began) * 1000
        wish.log.line(f"dependency layer {layer.digest} made, {layer.size:,} bytes, in {took:.0f} ms")
        return Provided(layer, cached=False)

    async def _hold(self, wish: _Wish, layer: Layer, made: Layer | None) -> None:
        keys = [object_key(item.digest) for item in (*wish.below, layer)]
        await self._queue.hold(wish.claim, keys, made)


def _manifest(code: Code, allow_indexes: bool) -> Manifest:
    return manifest_of(code.archive.paths, _reader(code), allow_indexes=allow_indexes)


def _reader(code: Code) -> Callable[[str], bytes]:
    files = {item.path: item for item in code.archive.files}
    return lambda path: b"".join(read(code.file, files[path]))


def _give_files(job: Job, code: Code) -> None:
    """Write the archive's files that are installed from to where the installer reads them."""
    job.given.mkdir(parents=True)
    read_file = _reader(code)
    for path in job.manifest.files:
        target = job.given / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(read_file(path))


def _written(modules: Path, tar: Path, most_bytes: int) -> Layer:
    files = installed_files(modules, most_bytes)
    with tar.open("wb") as out:
        digest, size = write_layer(out, files)
    return Layer("", digest, size, facts={_MODULES: list(modules_in(file.path for file in files))})
