"""Compiler of a machine that has no interpreter for the runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sless_builder.domain.build import Problem, UserError
from sless_builder.ports import Compilation


class NoCompiler:
    """Every build ends with one sentence; trying again would not help."""

    def prepare(self) -> None:
        """See Compiler."""

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Compilation]:
        """See Compiler."""
        raise UserError(
            Problem(
                "RUNTIME_UNAVAILABLE", "this platform has no Python 3.11 for python3.11: name one by SLESS_PYTHON311"
            )
        )
        yield  # what makes this a context manager
