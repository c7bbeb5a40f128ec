"""Compiles a function's modules, so that what is wrong with one shows now and no cold start does it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from sless_platform.telemetry import spanned

from sless_builder.application.finishing import in_thread
from sless_builder.domain.archive import Archive, ArchiveFile, read
from sless_builder.domain.build import Problem
from sless_builder.domain.imports import Import, Imports, imports_of
from sless_builder.domain.layers import LayerFile
from sless_builder.domain.paths import MAX_SEGMENT_BYTES
from sless_builder.ports import Compilation, Compiler, Module

_SUFFIX: Final = ".py"
_TAG: Final = ".cpython-311.pyc"
_MAX_FILE_BYTES: Final = 2 << 20
_MAX_TOTAL_BYTES: Final = 16 << 20
"""What is beyond these bounds is left for the interpreter to compile when it is imported. They go by size, not by time, so that
the same code always gives the same layer."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What came of the modules: .pyc files for the layer, the modules that are broken, and what the others import."""

    files: tuple[LayerFile, ...]
    broken: tuple[Problem, ...]
    imports: Imports


@dataclass
class _Spooled:
    """The .pyc files, one after the other in one file on disk."""

    path: Path
    places: list[tuple[str, int, int]] = field(default_factory=list)
    size: int = 0

    def add(self, file: BinaryIO, path: str, content: bytes) -> None:
        file.write(content)
        self.places.append((path, self.size, len(content)))
        self.size += len(content)

    def files(self) -> tuple[LayerFile, ...]:
        return tuple(self._file(*place) for place in self.places)

    def _file(self, path: str, start: int, size: int) -> LayerFile:
        def content() -> tuple[bytes]:
            with self.path.open("rb") as file:
                file.seek(start)
                return (file.read(size),)

        return LayerFile(path, size, executable=False, content=content)


def pyc_path(path: str) -> str:
    """Where Python looks for the compiled module (PEP 3147): `lib/x.py` → `lib/__pycache__/x.cpython-311.pyc`."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}__pycache__/{name.removesuffix(_SUFFIX)}{_TAG}"


class Compiling:
    """Compiles archives. One sandbox a call, begun only when there is something to compile."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    @spanned("compile")
    async def compile(self, archive: Archive, file: BinaryIO, entry_module: str, spool: Path) -> Compiled:
        """Compile the entrypoint's module, then the others in order; stops after the first one if that is broken.

        `spool`: a new file's path. Raises Unavailable when the sandbox fails.
        """
        spooled, broken = _Spooled(spool), []
        imports: dict[str, tuple[Import, ...]] = {}
        with spool.open("wb") as out:
            async with self._compiler.session() as session:
                for item in _modules(archive, entry_module):
                    outcome = await self._compiled(session, file, item)
                    if isinstance(outcome, Module):
                        spooled.add(out, pyc_path(item.path), outcome.pyc)
                        imports[item.path] = outcome.imports
                        continue
                    broken.append(outcome)
                    if item.path == entry_module:
                        break
        return Compiled(spooled.files(), tuple(broken), imports_of(imports, archive.paths))

    async def _compiled(self, session: Compilation, file: BinaryIO, item: ArchiveFile) -> Module | Problem:
        source = await in_thread(lambda: b"".join(read(file, item)))
        return await session.compile(item.path, source)


def _modules(archive: Archive, entry_module: str) -> list[ArchiveFile]:
    """What is to be compiled, the entrypoint's module first."""
    chosen, total = [], 0
    for item in sorted(archive.files, key=lambda item: (item.path != entry_module, item.path)):
        if not item.path.endswith(_SUFFIX) or not _has_room(item.path):
            continue
        if item.path == entry_module or (item.size <= _MAX_FILE_BYTES and total + item.size <= _MAX_TOTAL_BYTES):
            chosen.append(item)
            total += item.size
    return chosen


def _has_room(path: str) -> bool:
    """Whether a file system can hold the name of the .pyc."""
    return len(pyc_path(path).rpartition("/")[2].encode()) <= MAX_SEGMENT_BYTES
