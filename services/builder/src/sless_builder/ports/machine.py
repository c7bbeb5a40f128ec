"""What the builder needs of the machine it runs on. Every method may raise Unavailable."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from sless_builder.domain.build import Problem
from sless_builder.domain.imports import Import
from sless_builder.domain.steps import Step, StepEnd


class Spool(Protocol):
    """A file on disk that is written to its end, then read."""

    file: BinaryIO

    async def write(self, data: bytes) -> None:
        """Append. Raises Unavailable when the disk is full."""
        ...


class Workspace(Protocol):
    """Room on disk for what is under way; what a killed process left there is removed when the next one starts."""

    def spool(self) -> AbstractAsyncContextManager[Spool]:
        """A file, removed at the block's end."""
        ...

    def folder(self) -> AbstractAsyncContextManager[Path]:
        """An empty folder, removed with what is in it at the block's end."""
        ...


class LayerSink(Protocol):
    """Where layers must be so that instances can be started from them."""

    async def has(self, digest: str) -> bool:
        """Whether the layer is there, whole."""
        ...

    async def put(self, digest: str, tar: Path) -> None:
        """Make it be there, from its tar; all or nothing. Nothing happens when it is."""
        ...

    async def remove(self, digest: str) -> None:
        """Take it away; instances that run from it go on."""
        ...


class Leftovers(Protocol):
    """What nobody uses any more in one place of the machine."""

    async def sweep(self) -> None:
        """Remove for good what was taken away long ago, and what killed processes left."""
        ...


@dataclass(frozen=True, slots=True)
class Module:
    """A compiled module: a .pyc that needs no look at its source, and what it imports."""

    pyc: bytes = field(repr=False)
    imports: tuple[Import, ...] = ()


class Compilation(Protocol):
    """A sandbox that runs."""

    async def compile(self, path: str, source: bytes) -> Module | Problem:
        """The compiled module, or what is wrong with the source.

        Raises Unavailable when the sandbox ended for a reason that is not the source's.
        """
        ...


class Compiler(Protocol):
    """Compiles source that nobody trusts, in a sandbox without any credential."""

    def prepare(self) -> None:
        """A build is about to come: a sandbox may be made ready for it meanwhile."""
        ...

    def session(self) -> AbstractAsyncContextManager[Compilation]:
        """A sandbox for the block; its process is gone afterwards, however the block ends."""
        ...


@dataclass(frozen=True, slots=True)
class RuntimeFile:
    """One file of a runtime."""

    path: str
    content: bytes = field(repr=False)
    executable: bool = False


class Runtimes(Protocol):
    """The platform's own code inside an instance."""

    async def files(self, runtime: str) -> tuple[RuntimeFile, ...]:
        """A runtime's files, without tests. Raises FailedPrecondition when this machine does not have it."""
        ...


class Sandbox(Protocol):
    """Runs what nobody trusts: without any credential, as a user of its own, and within limits."""

    async def run(self, step: Step, output: Callable[[str], None]) -> StepEnd:
        """Run one command to its end; `output` gets its whole lines, of stdout and stderr together, as they come.

        Nothing that it began is left afterwards, however it ends; a cancellation ends it within a moment.
        Raises Unavailable when the sandbox itself fails.
        """
        ...
