"""Calls to real instances, as tests make them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from sless_calls import Call, CallHead, Connection

from runtimes.contract.harness import Instance

SOON = timedelta(seconds=20)
MIB = 1024 * 1024


def head(**members: Any) -> CallHead:
    return CallHead(id="c", headers=[("content-type", "application/json")], **members)


def send(connection: Connection, event: object, **members: Any) -> Call:
    return connection.call(head(**members), json.dumps(event).encode())


async def answer(connection: Connection, event: object, **members: Any) -> Any:
    call = send(connection, event, **members)
    assert (await call.reply()).status == 200
    return json.loads(await call.read())


@asynccontextmanager
async def connected(instance: Instance, role: str = "gateway", **options: Any) -> AsyncIterator[Connection]:
    connection = await Connection.open(instance.address, role=role, open_timeout=SOON, **options)
    try:
        yield connection
    finally:
        await connection.close()


async def until(condition: Any) -> None:
    """Wait until an awaitable condition holds."""
    async with asyncio.timeout(15):
        while not await condition():
            await asyncio.sleep(0.005)


async def until_idle(connection: Connection) -> None:
    async def idle() -> bool:
        return connection.in_flight == 0

    await until(idle)
