"""What every ApiKeyStore must do."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sless_auth.adapters.database import Database
from sless_auth.adapters.memory_keys import MemoryKeys
from sless_auth.adapters.postgres_keys import PostgresKeys
from sless_auth.domain.api_keys import ApiKey, Position, StoredKey, digest_of, new_id
from sless_auth.errors import LimitReached, RequestIdReused
from sless_auth.main import MIGRATIONS, SCHEMA
from sless_auth.ports import ApiKeyStore
from sless_platform.postgres import create_pool

from tests.support.api_keys import random_letters
from tests.support.postgres import ServiceDatabase

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
NAMESPACE = "sless-0123456789abcdef"
OTHER = "sless-fedcba9876543210"


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest, service_database: ServiceDatabase) -> AsyncIterator[ApiKeyStore]:
    if request.param == "memory":
        yield MemoryKeys()
        return
    dsn = await service_database("auth", MIGRATIONS)
    database = Database(lambda: create_pool(dsn, schema=SCHEMA))
    await database.open()
    yield PostgresKeys(database)
    await database.close()


def stored(**changes: Any) -> StoredKey:
    fields: dict[str, Any] = {
        "id": new_id(random_letters),
        "namespace": NAMESPACE,
        "name": "ci",
        "created_by": "alice",
        "created_at": NOW,
        **changes,
    }
    return StoredKey(ApiKey(**fields), digest_of(fields["id"]))


async def add(store: ApiKeyStore, *keys: StoredKey, limit: int = 100, request_id: str = "") -> None:
    for key in keys:
        await store.add(key, request_id=request_id, limit=limit, now=NOW)


async def test_what_is_added_is_found_whole(store: ApiKeyStore) -> None:
    endless, ending = stored(), stored(expires_at=NOW + timedelta(days=1))
    await add(store, endless, ending)

    assert await store.find(endless.key.id) == endless
    assert await store.find(ending.key.id) == ending
    assert await store.find(new_id(random_letters)) is None


async def test_pages_are_newest_first_and_of_one_namespace(store: ApiKeyStore) -> None:
    keys = [stored(created_at=NOW + timedelta(microseconds=number // 2)) for number in range(5)]
    await add(store, *keys, stored(namespace=OTHER))
    newest_first = sorted((key.key for key in keys), key=lambda key: (key.created_at, key.id), reverse=True)

    first = await store.page(NAMESPACE, after=None, limit=2)
    rest = await store.page(NAMESPACE, after=Position(first[-1].created_at, first[-1].id), limit=100)

    assert [*first, *rest] == newest_first


async def test_a_removed_key_is_gone_and_only_from_its_namespace_can_it_be_removed(store: ApiKeyStore) -> None:
    key = stored()
    await add(store, key)

    assert not await store.remove(OTHER, key.key.id)
    assert await store.remove(NAMESPACE, key.key.id)
    assert not await store.remove(NAMESPACE, key.key.id)
    assert await store.find(key.key.id) is None


async def test_all_keys_of_a_namespace_go_and_no_other(store: ApiKeyStore) -> None:
    one, two, others = stored(), stored(), stored(namespace=OTHER)
    await add(store, one, two, others)

    assert sorted(await store.remove_all(NAMESPACE)) == sorted([one.key.id, two.key.id])
    assert await store.remove_all(NAMESPACE) == []
    assert await store.find(others.key.id) == others


async def test_a_full_namespace_takes_no_more(store: ApiKeyStore) -> None:
    await add(store, stored(), stored(), limit=2)

    with pytest.raises(LimitReached):
        await add(store, stored(), limit=2)
    await add(store, stored(namespace=OTHER), limit=2)


async def test_in_a_full_namespace_expired_keys_give_way(store: ApiKeyStore) -> None:
    expired, living = stored(expires_at=NOW), stored(expires_at=NOW + timedelta(microseconds=1))
    await add(store, expired, living, limit=2)
    added = stored()

    await add(store, added, limit=2)

    found = {key.id for key in await store.page(NAMESPACE, after=None, limit=100)}
    assert found == {living.key.id, added.key.id}


async def test_the_limit_holds_when_keys_are_made_at_once(store: ApiKeyStore) -> None:
    outcomes = await asyncio.gather(*(add(store, stored(), limit=3) for _ in range(8)), return_exceptions=True)

    assert sum(outcome is None for outcome in outcomes) == 3
    assert sum(isinstance(outcome, LimitReached) for outcome in outcomes) == 5


async def test_a_request_makes_one_key(store: ApiKeyStore) -> None:
    request = str(uuid.uuid4())
    await add(store, stored(), request_id=request)

    with pytest.raises(RequestIdReused):
        await add(store, stored(), request_id=request)
    await add(store, stored(created_by="bob"), request_id=request)
    assert len(await store.page(NAMESPACE, after=None, limit=100)) == 2


async def test_the_last_use_is_the_latest_that_was_noted(store: ApiKeyStore) -> None:
    key, unused = stored(), stored()
    await add(store, key, unused)

    await store.note_uses({key.key.id: NOW, new_id(random_letters): NOW})
    await store.note_uses({key.key.id: NOW - timedelta(seconds=1)})

    assert await store.find(key.key.id) == replace(key, key=replace(key.key, last_used_at=NOW))
    assert await store.find(unused.key.id) == unused
