"""Layers on disk, and the room for what is under way."""

from __future__ import annotations

import asyncio
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from sless_builder.adapters.half_written import HalfWrittenObjects
from sless_builder.adapters.layer_folder import FolderLayerSink
from sless_builder.adapters.runtime_folder import FolderRuntimes
from sless_builder.adapters.workspace import FolderWorkspace
from sless_builder.domain.layers import LayerFile, write_layer
from sless_platform.errors import FailedPrecondition, Unavailable
from sless_platform.objects import FileObjectStore


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[FolderLayerSink]:
    opened = FolderLayerSink(tmp_path / "layers")
    opened.open()
    yield opened
    opened.close()


def a_tar(path: Path, files: dict[str, bytes]) -> str:
    entries = [LayerFile(name, len(content), False, lambda c=content: (c,)) for name, content in files.items()]  # type: ignore[misc]
    with path.open("wb") as out:
        return write_layer(out, entries)[0]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize("count", [1, 100])
async def test_a_layer_is_a_whole_folder(sink: FolderLayerSink, tmp_path: Path, count: int) -> None:
    files = {f"d{number % 7}/f{number}.txt": str(number).encode() for number in range(count)}
    digest = a_tar(tmp_path / "tar", files)
    assert not await sink.has(digest)
    await sink.put(digest, tmp_path / "tar")
    folder = tmp_path / "layers" / digest[7:]
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert await sink.has(digest)
    assert list((tmp_path / "layers" / ".unpacking").glob("*/*/*")) == []


async def test_several_who_unpack_one_layer_get_it(sink: FolderLayerSink, tmp_path: Path) -> None:
    digest = a_tar(tmp_path / "tar", {"a/b.txt": b"x" * 100_000})
    await asyncio.gather(*(sink.put(digest, tmp_path / "tar") for _ in range(8)))
    assert names(tmp_path / "layers") == {digest[7:]}
    assert list((tmp_path / "layers" / ".unpacking").glob("*/tmp*")) == []


async def test_a_layer_that_cannot_be_unpacked_leaves_nothing(sink: FolderLayerSink, tmp_path: Path) -> None:
    (tmp_path / "tar").write_bytes(b"no tar" * 200)
    with pytest.raises(tarfile.ReadError):
        await sink.put("sha256:ab", tmp_path / "tar")
    assert names(tmp_path / "layers") == set()
    assert list((tmp_path / "layers" / ".unpacking").glob("*/tmp*")) == []


async def test_a_removed_layer_stays_readable_for_who_has_it_open_and_goes_later(
    sink: FolderLayerSink, tmp_path: Path
) -> None:
    digest = a_tar(tmp_path / "tar", {"late.py": b"x = 1\n"})
    await sink.put(digest, tmp_path / "tar")
    mounted = os.open(tmp_path / "layers" / digest[7:], os.O_RDONLY | os.O_DIRECTORY)  # as a mount holds it
    try:
        await sink.remove(digest)
        await sink.remove(digest)
        assert not await sink.has(digest)
        await sink.sweep()
        with open("late.py", opener=lambda path, flags: os.open(path, flags, dir_fd=mounted)) as file:
            assert file.read() == "x = 1\n"
        (removed,) = (tmp_path / "layers" / ".removed").iterdir()
        hour_ago = time.time() - 3_600
        os.utime(removed, (hour_ago, hour_ago))
        await sink.sweep()
        assert list((tmp_path / "layers" / ".removed").iterdir()) == []
    finally:
        os.close(mounted)


async def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    dead, living = FolderWorkspace(tmp_path), FolderWorkspace(tmp_path)
    dead.open()
    living.open()
    (dead.path() / "upload").write_bytes(b"x")
    (living.path() / "upload").write_bytes(b"x")
    assert dead._lock is not None
    dead._lock.close()  # as the system does for a killed process
    successor = FolderWorkspace(tmp_path)
    successor.open()
    assert set(tmp_path.iterdir()) == {living.path(), successor.path()}
    assert (living.path() / "upload").is_file()
    for workspace in (living, successor):
        workspace.close()
        workspace.close()
    assert list(tmp_path.iterdir()) == []


async def test_what_was_half_written_to_the_object_store_goes_when_it_is_old(tmp_path: Path) -> None:
    objects, hour_ago = FileObjectStore(tmp_path), time.time() - 3_700
    await objects.put("code/x", b"x")
    for name in ("old", "new"):
        (tmp_path / ".tmp" / name).write_bytes(b"half")
    os.utime(tmp_path / ".tmp" / "old", (hour_ago, hour_ago))
    await HalfWrittenObjects(tmp_path).sweep()
    assert [path.name for path in (tmp_path / ".tmp").iterdir()] == ["new"]
    assert await objects.read("code/x") == b"x"
    await HalfWrittenObjects(tmp_path / "nothing").sweep()


async def test_a_full_disk_is_told_as_the_platforms_fault(tmp_path: Path) -> None:
    workspace = FolderWorkspace(tmp_path)
    workspace.open()
    with Path("/dev/full").open("wb", buffering=0) as full:
        async with workspace.spool() as spool:
            real, spool.file = spool.file, cast(BinaryIO, full)
            with pytest.raises(Unavailable, match="No space left on device"):
                await spool.write(b"x")
            spool.file = real
    workspace.close()


async def test_a_runtime_is_its_files_without_tests_and_leftovers(tmp_path: Path) -> None:
    for name in (
        "main.py",
        "pkg/a.py",
        "pkg/__pycache__/a.pyc",
        "tests/test_a.py",
        "pkg/test_b.py",
        "README.md",
        ".hidden",
    ):
        path = tmp_path / "python3.11" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    runtimes = FolderRuntimes(tmp_path)
    assert [file.path for file in await runtimes.files("python3.11")] == ["main.py", "pkg/a.py"]
    with pytest.raises(FailedPrecondition, match=r"python3\.12 is not installed"):
        await runtimes.files("python3.12")
