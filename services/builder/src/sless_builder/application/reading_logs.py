"""GetBuildLog: a version's build log, to its end if asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from sless_platform.errors import NotFound
from sless_platform.identity import Principal, authorise

from sless_builder.domain.build import BuildState
from sless_builder.domain.known import VersionInfo
from sless_builder.errors import LogNotFound
from sless_builder.ports import Listener, LogPart, Logs, Registry, Signals, Target, build_topic

_LOOK_AGAIN: Final = timedelta(seconds=1)
"""Signals may be lost; nobody who follows a log waits longer than this for what is there."""


class BuildLogs:
    """Reads build logs."""

    def __init__(self, *, registry: Registry, logs: Logs, signals: Signals) -> None:
        self._registry = registry
        self._logs = logs
        self._signals = signals

    async def read(self, *, principal: Principal, target: Target, number: int, follow: bool) -> AsyncIterator[str]:
        """The log's text in parts of whole lines; with `follow` until the build has ended. Why a build was cancelled is its last line.

        Raises PermissionDenied, NotFound, LogNotFound.
        """
        authorise(principal, target.namespace)
        version = await self._registry.version(target, number)
        with self._signals.listen(build_topic(version.uid)) as changed:
            position = 0
            while True:
                part = await self._logs.log(version.uid, position)
                if part is None:
                    version = await self._without_log(target, number, version)
                else:
                    position = part.position
                    if part.text:
                        yield part.text
                state = version.state if part is None else part.state
                if state is BuildState.CANCELLED:
                    yield await self._why_cancelled(target, number)
                if not follow or state.final:
                    return
                await _next(changed, part)

    async def _without_log(self, target: Target, number: int, known: VersionInfo) -> VersionInfo:
        """A version that the builder has not heard of yet, or not any more."""
        version = await self._registry.version(target, number) if not known.state.final else known
        if version.state.final and version.state is not BuildState.CANCELLED:
            raise LogNotFound(f"there is no build log of version {number} of {target.name}")
        return version

    async def _why_cancelled(self, target: Target, number: int) -> str:
        """The registry knows it; nobody does once the function is deleted."""
        try:
            version = await self._registry.version(target, number)
        except NotFound:
            return ""
        return f"{version.message}\n" if version.state is BuildState.CANCELLED else ""


async def _next(changed: Listener, part: LogPart | None) -> None:
    # Before the build is queued nothing signals it.
    waiting = part is None or part.state is BuildState.PENDING
    await changed.wait(_LOOK_AGAIN / 10 if waiting else _LOOK_AGAIN)
