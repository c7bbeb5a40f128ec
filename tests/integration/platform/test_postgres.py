"""The pool against a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sless_platform.errors import (
    Aborted,
    DeadlineExceeded,
    FailedPrecondition,
    Kind,
    NotFound,
    PlatformError,
    Unavailable,
)
from sless_platform.postgres import connection, create_pool, retried_transaction, transaction, translate

from tests.support.postgres import PostgresServer, running_postgres

SCHEMA = "sless_mail"
SHORT = timedelta(milliseconds=200)


@pytest.fixture
def dsn(postgres_server: PostgresServer, fresh_database: str) -> str:
    return postgres_server.provision(fresh_database, "mail")


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[asyncpg.Pool]:
    async with await create_pool(dsn, schema=SCHEMA, max_size=4) as made:
        await made.execute("CREATE TABLE letter (id bigint PRIMARY KEY, body jsonb)")
        yield made


async def test_connections_look_into_their_own_schema(pool: asyncpg.Pool) -> None:
    assert await pool.fetchval("SELECT schemaname FROM pg_tables WHERE tablename = 'letter'") == SCHEMA
    assert await pool.fetchval("SHOW search_path") == SCHEMA
    assert await pool.fetchval("SHOW application_name") == SCHEMA


@pytest.mark.parametrize("value", [{"a": [1, None, "木"]}, [], "text", 7, True, {}])
async def test_jsonb_comes_back_as_the_value_it_was(value: Any, pool: asyncpg.Pool) -> None:
    async with connection(pool) as acquired:
        await acquired.execute("INSERT INTO letter VALUES (1, $1)", value)
        assert await acquired.fetchval("SELECT body FROM letter") == value


async def test_a_transaction_is_kept_or_undone_whole(pool: asyncpg.Pool) -> None:
    async with transaction(pool) as acquired:
        await acquired.execute("INSERT INTO letter VALUES (1)")
    with pytest.raises(NotFound):
        await _insert_and_fail(pool, NotFound("no such box"))
    assert [row["id"] for row in await pool.fetch("SELECT id FROM letter")] == [1]


async def _insert_and_fail(pool: asyncpg.Pool, error: Exception) -> None:
    async with transaction(pool) as acquired:
        await acquired.execute("INSERT INTO letter VALUES (2)")
        raise error


async def test_a_readonly_transaction_writes_nothing(pool: asyncpg.Pool) -> None:
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        async with transaction(pool, readonly=True) as acquired:
            await acquired.execute("INSERT INTO letter VALUES (1)")


async def test_errors_of_a_statement_are_its_authors(pool: asyncpg.Pool) -> None:
    await pool.execute("INSERT INTO letter VALUES (1)")
    with pytest.raises(asyncpg.UniqueViolationError):
        async with transaction(pool) as acquired:
            await acquired.execute("INSERT INTO letter VALUES (1)")


@pytest.mark.parametrize("error", [FileNotFoundError("mine"), ValueError("mine")])
async def test_errors_of_other_work_in_the_block_stay_what_they_are(error: Exception, pool: asyncpg.Pool) -> None:
    with pytest.raises(type(error), match="mine"):
        await _insert_and_fail(pool, error)


async def test_a_pool_without_a_free_connection_is_unavailable_after_a_bounded_wait(dsn: str) -> None:
    async with await create_pool(dsn, schema=SCHEMA, max_size=1) as pool, connection(pool):
        with pytest.raises(Unavailable, match="the database is busy") as raised:
            async with connection(pool, timeout=timedelta(milliseconds=50)):
                raise AssertionError
    assert raised.value.retry_after is not None


async def test_a_statement_that_takes_too_long_is_ended(dsn: str) -> None:
    async with await create_pool(dsn, schema=SCHEMA, command_timeout=timedelta(milliseconds=50)) as pool:
        with pytest.raises(DeadlineExceeded):
            async with connection(pool) as acquired:
                await acquired.execute("SELECT pg_sleep(30)")
        assert await pool.fetchval("SELECT 1") == 1


async def _take_number(acquired: Any) -> int:
    value: int = await acquired.fetchval("SELECT value FROM counter")
    await acquired.execute("UPDATE counter SET value = $1", value + 1)
    return value


async def test_who_loses_against_another_transaction_is_told(pool: asyncpg.Pool) -> None:
    await pool.execute("CREATE TABLE counter AS SELECT 0 AS value")
    with pytest.raises(Aborted, match="another change came first"):
        await _overtaken(pool)
    assert await pool.fetchval("SELECT value FROM counter") == 1


async def _overtaken(pool: asyncpg.Pool) -> None:
    async with transaction(pool, isolation="serializable") as loser:
        await loser.fetchval("SELECT value FROM counter")
        async with transaction(pool, isolation="serializable") as winner:
            await _take_number(winner)
        await loser.execute("UPDATE counter SET value = 100")


async def test_work_is_done_again_until_it_wins_when_the_caller_asks(pool: asyncpg.Pool) -> None:
    await pool.execute("CREATE TABLE counter AS SELECT 0 AS value")
    values = await asyncio.gather(*(retried_transaction(pool, _take_number, tries=50) for _ in range(8)))
    assert sorted(values) == list(range(8))


async def test_work_is_given_up_after_its_tries(pool: asyncpg.Pool) -> None:
    tried = 0

    async def work(acquired: Any) -> None:
        nonlocal tried
        tried += 1
        await acquired.execute("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = 'serialization_failure'; END $$")

    with pytest.raises(Aborted):
        await retried_transaction(pool, work, tries=3)
    assert tried == 3


async def test_an_aborted_of_the_work_itself_is_not_tried_again(pool: asyncpg.Pool) -> None:
    tried = 0

    async def work(_acquired: Any) -> None:
        nonlocal tried
        tried += 1
        raise Aborted("the letter was changed")

    with pytest.raises(Aborted, match="the letter was changed"):
        await retried_transaction(pool, work)
    assert tried == 1


TRANSLATED: dict[str, tuple[Exception, Kind]] = {
    "refused": (ConnectionRefusedError(), Kind.UNAVAILABLE),
    "no socket": (FileNotFoundError(), Kind.UNAVAILABLE),
    "starting": (asyncpg.CannotConnectNowError(), Kind.UNAVAILABLE),
    "shutting down": (asyncpg.AdminShutdownError(), Kind.UNAVAILABLE),
    "crashed": (asyncpg.CrashShutdownError(), Kind.UNAVAILABLE),
    "lost": (asyncpg.ConnectionDoesNotExistError(), Kind.UNAVAILABLE),
    "closed": (asyncpg.InterfaceError("connection is closed"), Kind.UNAVAILABLE),
    "pool closing": (asyncpg.InterfaceError("pool is closing"), Kind.UNAVAILABLE),
    "full": (asyncpg.TooManyConnectionsError(), Kind.UNAVAILABLE),
    "disk full": (asyncpg.DiskFullError(), Kind.UNAVAILABLE),
    "lock": (asyncpg.LockNotAvailableError(), Kind.UNAVAILABLE),
    "serialisation": (asyncpg.SerializationError(), Kind.ABORTED),
    "deadlock": (asyncpg.DeadlockDetectedError(), Kind.ABORTED),
    "cancelled": (asyncpg.QueryCanceledError(), Kind.DEADLINE_EXCEEDED),
    "time-out": (TimeoutError(), Kind.DEADLINE_EXCEEDED),
    "password": (asyncpg.InvalidPasswordError(), Kind.FAILED_PRECONDITION),
    "role": (asyncpg.InvalidAuthorizationSpecificationError(), Kind.FAILED_PRECONDITION),
    "database": (asyncpg.InvalidCatalogNameError(), Kind.FAILED_PRECONDITION),
}


@pytest.mark.parametrize("case", TRANSLATED)
def test_what_a_driver_raises_is_told_in_our_words(case: str) -> None:
    error, kind = TRANSLATED[case]
    with pytest.raises(PlatformError) as raised, translate():
        raise error
    assert raised.value.kind is kind
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.UniqueViolationError("x"),
        asyncpg.UndefinedTableError("x"),
        asyncpg.DataError("invalid input for query argument"),
        asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
        KeyError("x"),
    ],
)
def test_what_is_the_codes_own_fault_is_not_translated(error: Exception) -> None:
    with pytest.raises(type(error)), translate():
        raise error


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda dsn: dsn.replace("sless_mail:", "sless_mail:wrong"), "refuses this user or database"),
        (lambda dsn: dsn.replace("sless_mail:", "nobody:"), "refuses this user or database"),
        (lambda dsn: dsn.replace("/t_", "/missing_"), "refuses this user or database"),
    ],
    ids=["password", "role", "database"],
)
async def test_a_server_that_refuses_is_not_waited_for(change: Callable[[str], str], words: str, dsn: str) -> None:
    with pytest.raises(FailedPrecondition, match=words) as raised:
        async with asyncio.timeout(10):
            await create_pool(change(dsn), schema=SCHEMA, wait=timedelta(minutes=5))
    assert "wrong" not in raised.value.message


@pytest.mark.parametrize("address", ["?host={folder}", "127.0.0.1:1"], ids=["unix", "tcp"])
async def test_a_server_that_does_not_come_is_waited_for_within_bounds(address: str, tmp_path: Path) -> None:
    where = address.format(folder=tmp_path)
    dsn = (
        f"postgresql://u:hunter2@{where}/db" if "?" not in where else f"postgresql://u:hunter2@/db{where}"
    )  # secret-scan: allow
    with pytest.raises(Unavailable, match=r"did not come up within 0\.2 s") as raised:
        await create_pool(dsn, schema=SCHEMA, wait=SHORT)
    assert "hunter2" not in raised.value.message


async def test_a_pool_is_made_while_the_server_starts_and_outlives_its_crash() -> None:
    """Its own server: it is broken here."""
    with running_postgres() as server:
        server.stop()
        making = asyncio.create_task(
            create_pool(server.dsn("postgres", "sless_owner"), schema="public", wait=timedelta(seconds=60))
        )
        await asyncio.sleep(0)
        await asyncio.to_thread(server.resume)
        async with await making as pool:
            with pytest.raises(Unavailable, match="cannot be reached now"):
                await _crashed_within(pool, server)
            with pytest.raises(Unavailable):
                async with connection(pool):
                    raise AssertionError
            await asyncio.to_thread(server.resume)
            async with connection(pool) as acquired:
                assert await acquired.fetchval("SELECT 1") == 1


async def _crashed_within(pool: asyncpg.Pool, server: PostgresServer) -> None:
    async with transaction(pool) as acquired:
        await acquired.execute("SELECT 1")
        await asyncio.to_thread(server.crash)
        await acquired.execute("SELECT 1")
