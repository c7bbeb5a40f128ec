"""PostgreSQL by asyncpg: one pool a service, bounded waits, typed errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypeVar

import asyncpg

from sless_platform.backoff import Backoff
from sless_platform.errors import Aborted, DeadlineExceeded, FailedPrecondition, PlatformError, Unavailable

T = TypeVar("T")
Isolation = Literal["read_committed", "repeatable_read", "serializable"]
Connection: TypeAlias = asyncpg.pool.PoolConnectionProxy

ACQUIRE_TIMEOUT = timedelta(seconds=5)
CONNECT_TIMEOUT = timedelta(seconds=5)
COMMAND_TIMEOUT = timedelta(seconds=30)

_WAIT = Backoff(timedelta(milliseconds=20), timedelta(seconds=1))
_RETRY = Backoff(timedelta(milliseconds=5), timedelta(milliseconds=200), jitter=1.0)

_DOWN = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
)
_LOST = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
_REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)


async def create_pool(
    dsn: str,
    *,
    schema: str,
    min_size: int = 0,
    max_size: int = 10,
    wait: timedelta = timedelta(seconds=30),
    command_timeout: timedelta = COMMAND_TIMEOUT,
) -> asyncpg.Pool:
    """A pool whose connections look into `schema` first and take and give jsonb as Python values.

    `dsn`: a `postgresql:` URL with user and password; a unix socket is given as `?host=/folder/of/the/socket`.
    Waits up to `wait` for a server that is not there yet. Raises Unavailable when it does not come, FailedPrecondition when it refuses
    this user or database.
    """
    await _wait_for_server(dsn, wait)
    with translate():
        return await asyncpg.create_pool(
            dsn,
            min_size=min_size,
            max_size=max_size,
            command_timeout=command_timeout.total_seconds(),
            timeout=CONNECT_TIMEOUT.total_seconds(),
            init=_prepare,
            # jit: our statements are short, compiling them costs more than running them.
            server_settings={"search_path": schema, "application_name": schema, "jit": "off"},
        )


@asynccontextmanager
async def connection(pool: asyncpg.Pool, *, timeout: timedelta = ACQUIRE_TIMEOUT) -> AsyncIterator[Connection]:  # noqa: ASYNC109
    """A connection of the pool, errors translated. Raises Unavailable when none is free within `timeout`."""
    acquired = await _acquired(pool, timeout)
    with _translating(ConnectionError):
        try:
            yield acquired
        finally:
            await pool.release(acquired)


@asynccontextmanager
async def transaction(
    pool: asyncpg.Pool,
    *,
    isolation: Isolation = "read_committed",
    readonly: bool = False,
    timeout: timedelta = ACQUIRE_TIMEOUT,  # noqa: ASYNC109
) -> AsyncIterator[Connection]:
    """A transaction: committed when the block ends, rolled back when it raises. Raises Aborted when it lost against another one."""
    async with (
        connection(pool, timeout=timeout) as acquired,
        acquired.transaction(isolation=isolation, readonly=readonly),
    ):
        yield acquired


async def retried_transaction(
    pool: asyncpg.Pool,
    work: Callable[[Connection], Awaitable[T]],
    *,
    tries: int = 5,
    isolation: Isolation = "serializable",
) -> T:
    """Run `work(connection)` in a transaction, again from its start while it loses against another one (SQLSTATE 40001, 40P01).

    `work` must have no effect outside of the transaction. Raises Aborted after `tries`.
    """
    pauses = _RETRY.delays()
    while True:
        tries -= 1
        try:
            async with transaction(pool, isolation=isolation) as acquired:
                return await work(acquired)
        except Aborted as error:
            if tries <= 0 or not isinstance(error.__cause__, _LOST):
                raise
        await asyncio.sleep(next(pauses).total_seconds())


def translate() -> AbstractContextManager[None]:
    """Raise typed errors for what asyncpg raises when the database is away, refuses, or gives way to another transaction.

    For blocks of database calls alone: any OSError in it counts as the database's. Errors that mean something to a statement's author
    (unique_violation, …) pass through and are caught where the statement stands.
    """
    return _translating(OSError)


@contextmanager
def _translating(down: type[OSError]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        translated = _translated(error, down)
        if translated is None:
            raise
        raise translated from error


def _translated(error: Exception, down: type[OSError]) -> PlatformError | None:
    if isinstance(error, _LOST):
        return Aborted("another change came first; read again and try again")
    if isinstance(error, asyncpg.QueryCanceledError) or type(error) is TimeoutError:
        return DeadlineExceeded("the database did not answer in time")
    if isinstance(error, (*_DOWN, down)) or _connection_lost(error):
        return Unavailable("the database cannot be reached now; try again")
    if isinstance(error, _REFUSED):
        return FailedPrecondition("the database refuses this user or database: check the DSN")
    return None


def _connection_lost(error: Exception) -> bool:
    """asyncpg reports a lost connection and a misuse by one class; only their texts differ."""
    return type(error) is asyncpg.InterfaceError and any(
        word in str(error) for word in ("clos", "terminated", "released")
    )


async def _acquired(pool: asyncpg.Pool, timeout: timedelta) -> Connection:  # noqa: ASYNC109
    with translate():
        try:
            return await pool.acquire(timeout=timeout.total_seconds())
        except TimeoutError:
            raise Unavailable("the database is busy; try again", retry_after=timedelta(seconds=1)) from None


async def _wait_for_server(dsn: str, wait: timedelta) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait.total_seconds()
    for pause in _WAIT.delays():
        try:
            with translate():
                session = await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT.total_seconds())
                await session.close()
            return
        except (Unavailable, DeadlineExceeded) as error:
            if loop.time() + pause.total_seconds() > deadline:
                raise Unavailable(f"the database did not come up within {wait.total_seconds():g} s") from error
        await asyncio.sleep(pause.total_seconds())


async def _prepare(acquired: Any) -> None:
    await acquired.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
