"""What every store does with writes: all of a transaction or nothing, revisions without gaps, answers kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sless_registry.domain import lifecycle
from sless_registry.domain.record import Changes, Record, changes, traced
from sless_registry.domain.resources import BuildError, Kind, Phase, Secret, VersionState
from sless_registry.ports import Answer, Event, RequestKey, ResourceType, Store, StoredAnswer

from tests.support.registry_domain import (
    NAMESPACE,
    NOW,
    a_configuration,
    a_record,
    at,
    built,
    reported,
    serving,
    uploaded,
)

KEY = RequestKey("sub", "CreateFunction", "0199e325-1cdf-7cda-9319-e5302a85e291")


async def put(store: Store, before: Record | None, after: Record) -> int:
    """Write what differs; gives the revision."""
    async with store.transaction() as transaction:
        return await transaction.write(changes(before, after))


def written(record: Record, revision: int) -> Record:
    """The record as it comes back after all of it was written in one revision."""
    function = replace(record.function, revision=revision)
    return Record(function, tuple(replace(version, revision=revision) for version in record.versions))


async def test_a_store_begins_empty(store: Store) -> None:
    assert await store.revision() == 0
    assert await store.namespace(NAMESPACE) is None
    assert (await store.function(NAMESPACE, "hello")).function is None
    assert (await store.function_by_uid("f" * 32)).function is None
    assert list(await store.events(after=0, limit=10)) == []


async def test_what_is_written_comes_back_whole(store: Store) -> None:
    secret = Secret("digest", "key", bytes(range(40)))
    record = built(uploaded(a_record(env_vars={"Ä": "☃"}, labels={"a": "b"}, secret_env={"S": secret})), 1)
    record = reported(uploaded(record, "b"), 2, VersionState.FAILED, message="line 3: oops\n☃")
    error = BuildError("SYNTAX_ERROR", "invalid syntax", "handler.py", 3)
    record = record.with_versions([replace(record.versions[1], error=error, build_started_at=at(1))])
    record = traced(None, record, "00-trace")

    revision = await put(store, None, record)

    async with store.transaction() as transaction:
        assert await transaction.lock(NAMESPACE, "hello") == written(record, revision)
        assert await transaction.lock_uid(record.function.uid) == written(record, revision)
        assert await transaction.lock_version("version-2") == written(record, revision)
        assert list(await transaction.lock_all(NAMESPACE)) == [written(record, revision)]
    at_ = await store.function(NAMESPACE, "hello")
    assert (at_.function, at_.revision) == (written(record, revision).function, revision)
    assert await store.function_by_uid(record.function.uid) == at_
    assert await store.version(record.function.uid, 2) == written(record, revision).versions[1]


async def test_a_service_without_a_timeout_comes_back_without_one(store: Store) -> None:
    record = lifecycle.created(
        uid="s" * 32,
        namespace=NAMESPACE,
        name="s",
        kind=Kind.SERVICE,
        configuration=a_configuration(timeout=None),
        now=NOW,
    )

    await put(store, None, record)

    found = (await store.function(NAMESPACE, "s")).function
    assert found is not None
    assert found.configuration.timeout is None
    assert found.kind is Kind.SERVICE


async def test_every_write_takes_the_next_revision_and_tells_of_it(store: Store) -> None:
    first, second = a_record(), uploaded(a_record())

    revisions = [await put(store, None, first), await put(store, first, second)]

    assert revisions == [1, 2]
    assert await store.revision() == 2
    assert list(await store.events(after=0, limit=10)) == [
        Event(1, ResourceType.FUNCTION, "f" * 32),
        Event(2, ResourceType.FUNCTION, "f" * 32),
        Event(2, ResourceType.VERSION, "version-1"),
    ]


async def test_a_transaction_that_raises_leaves_nothing(store: Store) -> None:
    async def broken() -> None:
        async with store.transaction() as transaction:
            await transaction.ensure_namespace(NAMESPACE, NOW)
            await transaction.write(changes(None, a_record()))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        await broken()

    assert await store.revision() == 0
    assert await store.namespace(NAMESPACE) is None
    assert (await store.function(NAMESPACE, "hello")).function is None
    assert list(await store.events(after=0, limit=10)) == []


async def test_a_later_write_changes_what_is_there(store: Store) -> None:
    first = a_record()
    await put(store, None, first)
    second = built(uploaded(first), 1)
    await put(store, first, second)
    third = second.with_versions([replace(second.versions[0], active=True)])

    await put(store, second, third)

    async with store.transaction() as transaction:
        found = await transaction.lock(NAMESPACE, "hello")
    assert found is not None
    assert found.function == replace(second.function, revision=2)
    assert found.versions == (replace(third.versions[0], revision=3),)


async def test_versions_that_are_dropped_are_gone(store: Store) -> None:
    record = uploaded(built(uploaded(a_record()), 1), "b")
    await put(store, None, record)

    async with store.transaction() as transaction:
        await transaction.write(Changes(functions=(record.function,), dropped_versions=("version-1",)))

    assert await store.version(record.function.uid, 1) is None
    assert [version.number for version in await store.versions(record.function.uid, before=0, limit=9)] == [2]
    assert Event(2, ResourceType.VERSION_PURGE, "version-1") in await store.events(after=1, limit=9)
    page = await store.changes(frozenset({ResourceType.VERSION_PURGE}), after=1, limit=9)
    assert (page.purged_versions, page.purged, page.versions) == (("version-1",), (), ())


@pytest.mark.fault(2)
async def test_a_deleted_functions_name_is_free_at_once(store: Store) -> None:
    old = serving()
    await put(store, None, old)
    gone, new = lifecycle.deleted(old, at(9)), a_record(uid="e" * 32)

    async with store.transaction() as transaction:
        revision = await transaction.write(changes(old, gone) + changes(None, new))

    found = (await store.function(NAMESPACE, "hello")).function
    assert found is not None
    assert found.uid == new.function.uid
    async with store.transaction() as transaction:
        assert await transaction.lock_uid(old.function.uid) is not None
        assert await transaction.deletion(NAMESPACE, "hello", kind=None) == revision
        assert await transaction.deletion(NAMESPACE, "", kind=Kind.FUNCTION) == revision
        assert await transaction.deletion(NAMESPACE, "hello", kind=Kind.SERVICE) == 0
        assert await transaction.deletion(NAMESPACE, "other", kind=None) == 0
        assert await transaction.count_functions(NAMESPACE) == 1


async def test_a_purged_function_leaves_only_an_event(store: Store) -> None:
    record = lifecycle.deleted(serving(), at(9))
    await put(store, None, record)

    async with store.transaction() as transaction:
        assert await transaction.finalized(record.function.uid, "builder") == {"builder"}
    async with store.transaction() as transaction:
        done = await transaction.finalized(record.function.uid, "runtime-manager")
        assert done == {"builder", "runtime-manager"}
        await transaction.write(Changes(purged_functions=(record.function.uid,)))

    assert (await store.function_by_uid(record.function.uid)).function is None
    assert await store.version(record.function.uid, 1) is None
    assert list(await store.events(after=1, limit=9)) == [Event(2, ResourceType.PURGE, record.function.uid)]


async def test_a_namespaces_number_is_never_given_again(store: Store) -> None:
    async with store.transaction() as transaction:
        first = await transaction.ensure_namespace(NAMESPACE, NOW)
        assert await transaction.ensure_namespace(NAMESPACE, at(5)) == first
    async with store.transaction() as transaction:
        assert await transaction.lock_namespace(NAMESPACE) == first
        await transaction.remove_namespace(NAMESPACE)
    async with store.transaction() as transaction:
        assert await transaction.lock_namespace(NAMESPACE) is None
        again = await transaction.ensure_namespace(NAMESPACE, at(9))

    assert again.number > first.number
    assert await store.namespace(NAMESPACE) == again


async def test_an_answer_is_kept_with_what_it_answers(store: Store) -> None:
    record = serving()
    answer = Answer(replace(record.function, revision=0), record.versions[0], created=True, fenced=True)
    stored = StoredAnswer(KEY, b"\x00print\xff", answer, 0, NOW)
    async with store.transaction() as transaction:
        assert await transaction.answer(KEY) is None
        await transaction.write(changes(None, record), stored)

    async with store.transaction() as transaction:
        assert await transaction.answer(KEY) == replace(stored, revision=1)
        assert await transaction.answer(replace(KEY, subject="other")) is None
        assert await transaction.answer(replace(KEY, method="other")) is None


async def test_an_answer_without_changes_takes_no_revision(store: Store) -> None:
    stored = StoredAnswer(KEY, b"print", Answer(), 0, NOW)

    async with store.transaction() as transaction:
        assert await transaction.write(Changes(), stored) == 0
    async with store.transaction() as transaction:
        assert await transaction.write(Changes(), replace(stored, created_at=at(1))) == 0

    async with store.transaction() as transaction:
        assert await transaction.answer(KEY) == replace(stored, created_at=at(1))
    assert await store.revision() == 0


async def test_two_tries_of_one_request_follow_each_other(store: Store) -> None:
    async def attempt() -> bool:
        async with store.transaction() as transaction:
            if await transaction.answer(KEY) is not None:
                return False
            await transaction.write(changes(None, a_record()), StoredAnswer(KEY, b"print", Answer(), 0, NOW))
            return True

    assert sorted(await asyncio.gather(*(attempt() for _ in range(8)))) == [False] * 7 + [True]


async def test_trimming_forgets_old_events_and_answers(store: Store) -> None:
    record = a_record()
    stored = StoredAnswer(KEY, b"print", Answer(), 0, NOW)
    async with store.transaction() as transaction:
        await transaction.write(changes(None, record), stored)
    for n in range(9):
        changed = record.with_function(replace(record.function, message=str(n)))
        await put(store, record, changed)

    await store.trim(events_kept=100, answers_before=NOW)
    assert (await store.span()).floor == 0
    await store.trim(events_kept=4, answers_before=NOW + timedelta(microseconds=1))

    span = await store.span()
    assert (span.floor, span.head) == (6, 10)
    assert [event.revision for event in await store.events(after=0, limit=99)] == [7, 8, 9, 10]
    async with store.transaction() as transaction:
        assert await transaction.answer(KEY) is None
    await store.trim(events_kept=8, answers_before=NOW)
    assert (await store.span()).floor == 6


async def test_what_is_switching_off_is_found_again(store: Store) -> None:
    off = replace(serving().function.configuration.replicas, max=0, min=0)
    record = built(uploaded(a_record(replicas=off)), 1)
    await put(store, None, record)
    await put(store, None, a_record(uid="e" * 32, name="other"))

    assert [function.uid for function in await store.switching_off()] == [record.function.uid]
    assert record.function.phase is Phase.DEPLOYING
