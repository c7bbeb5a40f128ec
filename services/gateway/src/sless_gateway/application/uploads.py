"""Uploads, and waiting for what they become."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sless_platform.backoff import Backoff
from sless_platform.errors import FailedPrecondition
from sless_platform.identity import authorise

from sless_gateway.application.conditions import Condition
from sless_gateway.application.functions import Resources
from sless_gateway.domain import Caller, ConfigChange, Function, FunctionKey, Phase, Upload, Version, VersionState
from sless_gateway.errors import BuildFailed
from sless_gateway.ports import Builder, Registry

_PAUSES: Final = Backoff(timedelta(milliseconds=100), timedelta(seconds=1), factor=1.5)


class Progress(enum.Enum):
    """How far an upload came while it was waited for."""

    QUEUED = "queued"
    READY = "ready"
    UNDER_WAY = "under way"


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What became of an upload, with the function as it is now."""

    upload: Upload
    function: Function
    progress: Progress


class Uploads:
    """Takes code in and, when asked to, waits for it."""

    def __init__(
        self, registry: Registry, builder: Builder, resources: Resources, *, new_request_id: Callable[[], str]
    ) -> None:
        self._registry = registry
        self._builder = builder
        self._resources = resources
        self._new_request_id = new_request_id

    async def upload(
        self,
        *,
        caller: Caller,
        key: FunctionKey,
        parts: AsyncIterator[bytes | ConfigChange],
        condition: Condition,
        build_only: bool,
        wait: timedelta | None,
    ) -> Uploaded:
        """Make a version of an archive, with the configuration among its parts. `wait` None: answer once it is stored.

        Raises BuildFailed when it was waited for and failed, FailedPrecondition when a newer upload took its place.
        """
        authorise(caller.principal, key.namespace)
        etag = await self._resources.etag_for(caller, key, condition)
        upload = await self._builder.upload(
            caller, key, parts, etag=etag, request_id=self._new_request_id(), build_only=build_only
        )
        if wait is None:
            return Uploaded(upload, upload.function, Progress.QUEUED)
        if build_only:
            return await self._await_build(caller, key, upload, wait)
        return await self._await_ready(caller, key, upload, wait)

    async def _await_ready(self, caller: Caller, key: FunctionKey, upload: Upload, wait: timedelta) -> Uploaded:
        function = await self._registry.wait(caller, key, wait)
        if function.settled and function.phase is Phase.FAILED:
            raise BuildFailed(function.message or "the upload failed")
        if function.settled and function.phase is Phase.READY:
            if function.active_version != upload.version.number:
                _check_usable(await self._registry.version(caller, key, upload.version.number))
            return Uploaded(upload, function, Progress.READY)
        return Uploaded(upload, function, Progress.UNDER_WAY)

    async def _await_build(self, caller: Caller, key: FunctionKey, upload: Upload, wait: timedelta) -> Uploaded:
        """A version that is not to serve changes nothing of its function, so the version itself is looked at."""
        version = upload.version
        try:
            async with asyncio.timeout(wait.total_seconds()):
                pauses = _PAUSES.delays()
                while not version.state.ended:
                    await asyncio.sleep(next(pauses).total_seconds())
                    version = await self._registry.version(caller, key, version.number)
        except TimeoutError:
            return Uploaded(upload, upload.function, Progress.UNDER_WAY)
        _check_usable(version)
        return Uploaded(upload, await self._registry.get(caller, key), Progress.READY)


def _check_usable(version: Version) -> None:
    if version.state is VersionState.FAILED:
        raise BuildFailed(version.message or "the build failed")
    if version.state is VersionState.CANCELLED:
        raise FailedPrecondition(f"version {version.number} was not built: a newer upload took its place")
