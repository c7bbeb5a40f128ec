"""Write transactions a second of the registry, 16 writers at once: `python tests/bench/bench_registry.py [SECONDS]`.

Each writer changes a function of its own; PostgreSQL is durable (fsync) in the folder for temporary files. Server, writers and watchers
share this process, so that the API's figure is of one core. Also how long a change takes to reach a watcher. No assertion.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parents[2]))

from google.protobuf.field_mask_pb2 import FieldMask
from sless.registry.v1 import registry_pb2 as pb
from sless_platform.postgres import create_pool, transaction
from sless_registry.adapters.postgres import PostgresStore
from sless_registry.domain.record import Record, changes
from sless_registry.main import MIGRATIONS, SCHEMA

from tests.support import postgres
from tests.support.registry import FUNCTIONS, RunningRegistry, a_function, on_postgres
from tests.support.registry_domain import NAMESPACE, a_record

WRITERS = 16
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "128MB"}

Write = Callable[[int, int], Awaitable[None]]
"""Makes the n-th change of a writer."""


async def rate(write: Write, seconds: float) -> float:
    """Changes a second of all writers together."""
    deadline = time.perf_counter() + seconds

    async def writer(number: int) -> int:
        done = 0
        while time.perf_counter() < deadline:
            await write(number, done)
            done += 1
        return done

    began = time.perf_counter()
    counts = await asyncio.gather(*(writer(number) for number in range(WRITERS)))
    return sum(counts) / (time.perf_counter() - began)


async def bare_rate(dsn: str, seconds: float) -> float:
    """The least that gives revisions without gaps: take the next one, write an event with it, commit."""
    pool = await create_pool(dsn, schema=SCHEMA, max_size=WRITERS)

    async def write(number: int, done: int) -> None:
        async with transaction(pool) as acquired:
            revision = await acquired.fetchval("UPDATE revision SET value = value + 1 RETURNING value")
            await acquired.execute("INSERT INTO events VALUES ($1, 1, $2)", revision, str(number))

    measured = await rate(write, seconds)
    await pool.close()
    return measured


async def store_rate(dsn: str, seconds: float) -> float:
    """Transactions straight on the store: lock, read, write, commit."""
    pool = await create_pool(dsn, schema=SCHEMA, max_size=WRITERS)
    store = PostgresStore(pool)
    for number in range(WRITERS):
        async with store.transaction() as begun:
            await begun.write(changes(None, a_record(uid=f"{number:032}", name=f"s{number}")))

    async def write(number: int, done: int) -> None:
        async with store.transaction() as begun:
            record = await begun.lock(NAMESPACE, f"s{number}")
            assert record is not None
            await begun.write(changes(record, changed(record, done)))

    measured = await rate(write, seconds)
    await pool.close()
    return measured


def changed(record: Record, done: int) -> Record:
    """The record with another message."""
    return record.with_function(replace(record.function, message=str(done)))


async def api_rate(registry: RunningRegistry, seconds: float) -> float:
    """UpdateFunction by gRPC."""

    async def write(number: int, done: int) -> None:
        function = a_function(f"a{number}", memory_mb=64 + done % 1_000 + 1)
        request = pb.UpdateFunctionRequest(function=function, update_mask=FieldMask(paths=["memory_mb"]))
        await registry.user().UpdateFunction(request)

    return await rate(write, seconds)


async def delays_ms(registry: RunningRegistry, count: int) -> list[float]:
    """From sending an update to its arrival at a watcher, one at a time."""
    start = pb.WatchStart(resource_types=FUNCTIONS, tail=True)
    measured = []
    async with registry.watching("builder", start) as watch:
        await watch.read()
        for n in range(count):
            began = time.perf_counter()
            reading = asyncio.create_task(watch.read())
            function = a_function("a0", memory_mb=2_000 + n)
            request = pb.UpdateFunctionRequest(function=function, update_mask=FieldMask(paths=["memory_mb"]))
            await registry.user().UpdateFunction(request)
            await reading
            measured.append((time.perf_counter() - began) * 1000)
    return measured


@asynccontextmanager
async def database() -> AsyncIterator[str]:
    """The DSN of a durable database."""
    postgres._SETTINGS.update(DURABLE)
    postgres._fast_folder = lambda: Path(tempfile.gettempdir())
    with postgres.running_postgres() as server:
        yield server.dsn(await server.service_database("registry", MIGRATIONS), SCHEMA)


async def main(seconds: float) -> None:
    """Measure and print."""
    async with database() as dsn:
        print(f"bare revisions, {WRITERS} writers:           {await bare_rate(dsn, seconds):7.0f} transactions/s")
        print(f"store, {WRITERS} writers:                    {await store_rate(dsn, seconds):7.0f} transactions/s")
        async with on_postgres(dsn) as registry:
            for number in range(WRITERS):
                await registry.create(f"a{number}")
            print(
                f"API, {WRITERS} writers:                      {await api_rate(registry, seconds):7.0f} transactions/s"
            )
            async with registry.invoker() as sent:
                measured = await api_rate(registry, seconds)
            told = sum(len(batch.changes) for batch in sent)
            print(
                f"API, {WRITERS} writers, one watcher:         {measured:7.0f} transactions/s, {told} changes in {len(sent)} batches"
            )
            delays = sorted(await delays_ms(registry, 300))
            print(f"an update to its watcher: median {statistics.median(delays):.2f} ms, 99 % {delays[-3]:.2f} ms")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 5))
