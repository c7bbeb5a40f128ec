"""Objects in a folder of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from sless_platform.errors import FailedPrecondition
from sless_platform.objects import FileObjectStore, ObjectStore

from tests.contract.object_store_suite import ObjectStoreSuite


class TestFileObjectStore(ObjectStoreSuite):
    """The suite, and what only files can show."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "made" / "when-needed"

    @pytest.fixture
    def store(self, root: Path) -> ObjectStore:
        return FileObjectStore(root)

    async def test_an_object_is_a_file_under_its_key(self, store: ObjectStore, root: Path) -> None:
        await store.put("a/b.txt", b"content")
        assert (root / "a" / "b.txt").read_bytes() == b"content"

    async def test_nothing_stays_behind(self, store: ObjectStore, root: Path) -> None:
        await store.put("a/b/c", b"x")
        await store.put("a/d", b"x")
        await store.delete("a/b/c")
        assert sorted(path.name for path in root.iterdir()) == [".tmp", "a"]
        assert [path.name for path in (root / "a").iterdir()] == ["d"]
        assert list((root / ".tmp").iterdir()) == []

    async def test_what_an_ended_process_was_writing_is_no_object(self, store: ObjectStore, root: Path) -> None:
        await store.put("k", b"x")
        (root / ".tmp" / "tmpabc").write_bytes(b"half")
        assert [key async for key in store.list()] == ["k"]

    async def test_a_link_out_of_the_root_is_not_followed_by_a_list(
        self, store: ObjectStore, root: Path, tmp_path: Path
    ) -> None:
        await store.put("k", b"x")
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "private").write_text("x")
        (root / "link").symlink_to(tmp_path / "outside")
        assert [key async for key in store.list()] == ["k"]

    @pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
    async def test_a_key_cannot_be_a_folder_of_another(self, store: ObjectStore, first: str, second: str) -> None:
        await store.put(first, b"first")
        with pytest.raises(FailedPrecondition, match=f"object key '{second}' cannot be used"):
            await store.put(second, b"second")
        assert await store.read(first) == b"first"
