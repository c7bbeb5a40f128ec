"""Uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sless_builder.adapters.no_compiler import NoCompiler
from sless_builder.adapters.workspace import FolderWorkspace
from sless_builder.application.uploading import Uploading, UploadRequest
from sless_builder.domain.archive import ArchiveInspector, ArchiveLimits
from sless_builder.domain.known import FunctionInfo
from sless_builder.ports import CreatedVersion, NewVersion, Target
from sless_platform.errors import NotFound, PlatformError, Unavailable
from sless_platform.identity import Principal

from tests.support import archives
from tests.support.builds import (
    F1,
    FakeRegistry,
    Kept,
    MemoryObjects,
)


class UploadRegistry(FakeRegistry):
    """A registry that refuses new versions."""

    error: PlatformError

    async def function(self, target: Target) -> FunctionInfo:
        return FunctionInfo(F1, "python3.11", "handler.handle")

    async def create_version(self, version: NewVersion) -> CreatedVersion:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kept_named"),
    [(Unavailable("the registry is away"), True), (NotFound("there is no function 'hello'"), False)],
)
async def test_code_goes_only_when_the_registry_has_surely_refused_it(
    tmp_path: Path, error: PlatformError, kept_named: bool
) -> None:
    kept, registry, workspace = Kept(), UploadRegistry(), FolderWorkspace(tmp_path)
    registry.error = error
    workspace.open()
    objects = MemoryObjects()
    uploading = Uploading(
        registry=registry,
        uploads=kept.store,
        objects=objects,
        workspace=workspace,
        inspector=ArchiveInspector(ArchiveLimits(1 << 20, 1 << 20, 10, 100)),
        compiler=NoCompiler(),
        max_archive_bytes=1 << 20,
    )
    owner = Principal("sub", namespace="ns")
    with pytest.raises(type(error)):
        await uploading.upload(
            principal=owner, request=UploadRequest(Target("ns", "hello", 0)), parts=pieces(archives.handler())
        )
    (key,) = objects.keys
    async with kept.store.collect(key) as unnamed:
        assert unnamed is not kept_named
    workspace.close()


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 7):
        yield data[start : start + 7]
