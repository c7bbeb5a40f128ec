"""What the builder needs to install packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sless_builder.domain.build import Problem
from sless_builder.domain.manifest import Manifest


class NeedsSources(Exception):
    """No wheel will do, and source builds were not asked for."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be installed.

    folder    this job's own, empty but for `given/`, in which the archive's files lie that are installed from.
    sources   whether source distributions may be built, which runs their code.
    deadline  when all of it must be over, on the event loop's clock.
    """

    folder: Path
    manifest: Manifest
    sources: bool
    deadline: float

    @property
    def given(self) -> Path:
        """Where the archive's files lie."""
        return self.folder / "given"


@dataclass(frozen=True, slots=True)
class Lock:
    """What was resolved: exact versions with hashes. `offline`: from the cache alone, for want of an index."""

    text: str
    offline: bool = False


class Installer(Protocol):
    """Finds and installs packages, in sandboxes; `output` gets what the tools print, line by line.

    Methods raise UserError for what the author must mend, NeedsSources, and Unavailable for the platform's failures: an index
    that can't be reached, a full disk, a sandbox that fails.
    """

    async def resolve(self, job: Job, output: Callable[[str], None]) -> Lock:
        """Choose versions that go together."""
        ...

    async def install(self, job: Job, lock: Lock | None, output: Callable[[str], None]) -> Path:
        """Install what was resolved, or the manifest as it stands when all of it has hashes; gives the folder of modules."""
        ...
