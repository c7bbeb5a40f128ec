"""What every object store must do. A store's own test file derives from ObjectStoreSuite and gives the fixture `store`, an empty one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sless_platform.errors import InvalidArgument, NotFound
from sless_platform.objects import CHUNK_BYTES, ObjectStore

GOOD_KEYS = [
    "a",
    "layers/sha256:00ff/base.tar",
    "A-Z_0=9/x@y+z",
    "a/b/c/d/e",
    "x.y.z",
    "k" * 200,
    "/".join(["k"] * 256),
]
BAD_KEYS = [
    "", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/../b", "a/./b", ".hidden", "a/.hidden", "a\\b", "a b", "a\nb", "a\0b",
    "é", "a?b", "a#b", "a%2e", "~", "k" * 201, "/".join(["k"] * 257),
]  # fmt: skip


async def _chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def _broken() -> AsyncIterator[bytes]:
    yield b"half"
    raise OSError("the sender is gone")


async def _keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [key async for key in store.list(prefix)]


class ObjectStoreSuite:
    """One suite, all implementations."""

    @pytest.mark.parametrize("key", GOOD_KEYS, ids=range(len(GOOD_KEYS)))
    async def test_what_is_put_can_be_got(self, store: ObjectStore, key: str) -> None:
        assert await store.put(key, b"content") == 7
        assert await store.read(key) == b"content"
        assert b"".join([chunk async for chunk in store.get(key)]) == b"content"
        assert await store.exists(key)
        assert await store.size(key) == 7
        assert await _keys(store) == [key]

    async def test_an_object_may_come_in_chunks(self, store: ObjectStore) -> None:
        assert await store.put("k", _chunks(b"one ", b"", b"two")) == 7
        assert await store.read("k") == b"one two"

    async def test_an_object_may_be_empty(self, store: ObjectStore) -> None:
        assert await store.put("none", b"") == 0
        assert await store.put("no-chunks", _chunks()) == 0
        assert await store.read("none") == await store.read("no-chunks") == b""
        assert [chunk async for chunk in store.get("none")] == []
        assert await store.exists("none")
        assert await store.size("none") == 0

    async def test_a_large_object_is_got_in_bounded_chunks(self, store: ObjectStore) -> None:
        pieces = [bytes([number]) * (100_000 + number) for number in range(20)]
        size = sum(map(len, pieces))
        assert await store.put("large", _chunks(*pieces)) == size
        got = [chunk async for chunk in store.get("large")]
        assert b"".join(got) == b"".join(pieces)
        assert max(map(len, got)) <= CHUNK_BYTES
        assert await store.size("large") == size

    async def test_a_put_replaces(self, store: ObjectStore) -> None:
        await store.put("k", b"the first, which is longer")
        await store.put("k", b"second")
        assert await store.read("k") == b"second"
        assert await store.size("k") == 6

    async def test_a_read_that_has_begun_is_not_disturbed(self, store: ObjectStore) -> None:
        old = bytes(3 * CHUNK_BYTES)
        await store.put("k", old)
        reading = store.get("k")
        got = await anext(reading)
        await store.put("k", b"new")
        await store.delete("k")
        got += b"".join([chunk async for chunk in reading])
        assert got == old

    async def test_a_put_that_fails_leaves_what_was_there(self, store: ObjectStore) -> None:
        with pytest.raises(OSError, match="the sender is gone"):
            await store.put("new", _broken())
        await store.put("old", b"whole")
        with pytest.raises(OSError, match="the sender is gone"):
            await store.put("old", _broken())
        assert await _keys(store) == ["old"]
        assert await store.read("old") == b"whole"

    async def test_a_put_that_is_cancelled_leaves_nothing(self, store: ObjectStore) -> None:
        sent = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield b"half"
            sent.set()
            await asyncio.Event().wait()

        putting = asyncio.create_task(store.put("k", endless()))
        async with asyncio.timeout(10):
            await sent.wait()
            assert not await store.exists("k")
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
        assert await _keys(store) == []

    async def test_what_is_not_there_is_not_found(self, store: ObjectStore) -> None:
        await store.put("folder/there", b"")
        for key in ("missing", "folder", "folder/missing", "folder/there/below"):
            with pytest.raises(NotFound, match="there is no object") as raised:
                await store.read(key)
            assert raised.value.reason == "OBJECT_NOT_FOUND"
            with pytest.raises(NotFound):
                await store.size(key)
            with pytest.raises(NotFound):
                await anext(store.get(key))
            assert not await store.exists(key)

    async def test_a_deleted_object_is_gone_and_may_be_deleted_again(self, store: ObjectStore) -> None:
        await store.put("a/b/c", b"x")
        await store.put("a/d", b"y")
        await store.delete("a/b/c")
        await store.delete("a/b/c")
        await store.delete("never/was")
        assert not await store.exists("a/b/c")
        assert await _keys(store) == ["a/d"]
        await store.put("a/b/c", b"again")
        assert await store.read("a/b/c") == b"again"

    async def test_a_list_is_sorted_and_begins_with_its_prefix(self, store: ObjectStore) -> None:
        keys = ["a/b/1", "a/b/2", "a/b2", "a/c", "a-b", "b"]
        for key in reversed(keys):
            await store.put(key, b"")
        assert await _keys(store) == sorted(keys)
        assert await _keys(store, "a/") == ["a/b/1", "a/b/2", "a/b2", "a/c"]
        assert await _keys(store, "a/b") == ["a/b/1", "a/b/2", "a/b2"]
        assert await _keys(store, "a/b/") == ["a/b/1", "a/b/2"]
        assert await _keys(store, "a/b/2") == ["a/b/2"]
        assert await _keys(store, "missing/") == []
        assert await _keys(store, "../") == []

    @pytest.mark.parametrize("key", BAD_KEYS, ids=range(len(BAD_KEYS)))
    async def test_a_key_that_is_not_allowed_is_refused_everywhere(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(InvalidArgument, match="object key"):
            await store.put(key, b"x")
        with pytest.raises(InvalidArgument):
            await store.read(key)
        with pytest.raises(InvalidArgument):
            await anext(store.get(key))
        with pytest.raises(InvalidArgument):
            await store.exists(key)
        with pytest.raises(InvalidArgument):
            await store.delete(key)
        with pytest.raises(InvalidArgument):
            await store.size(key)
        assert await _keys(store) == []

    async def test_many_at_once_do_not_disturb_each_other(self, store: ObjectStore) -> None:
        async def one(number: int) -> bytes:
            key = f"shared/{number % 4}/{number}"
            await store.put(key, _chunks(b"%d" % number))
            content = await store.read(key)
            await store.delete(key)
            return content

        assert await asyncio.gather(*map(one, range(60))) == [b"%d" % number for number in range(60)]
        assert await _keys(store) == []

    async def test_of_two_puts_of_one_key_one_wins_whole(self, store: ObjectStore) -> None:
        contents = [bytes([number]) * 300_000 for number in range(8)]
        await asyncio.gather(*(store.put("k", _chunks(content[:1], content[1:])) for content in contents))
        assert await store.read("k") in contents
