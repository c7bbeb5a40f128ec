"""Installer of a machine that has no sandbox to install in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sless_builder.domain.build import Problem, UserError
from sless_builder.ports.installing import Job, Lock


class NoInstaller:
    """Every build that asks for packages ends with one sentence; `why` says what is missing."""

    def __init__(self, why: str) -> None:
        self._problem = Problem("DEPENDENCIES_UNAVAILABLE", f"this platform can't install dependencies: {why}")

    async def resolve(self, job: Job, output: Callable[[str], None]) -> Lock:
        """See Installer."""
        raise UserError(self._problem)

    async def install(self, job: Job, lock: Lock | None, output: Callable[[str], None]) -> Path:
        """See Installer."""
        raise UserError(self._problem)
