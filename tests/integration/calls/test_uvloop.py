"""The same on uvloop, whose transports are not asyncio's."""

import asyncio
import json
from datetime import timedelta

import pytest
import uvloop
from sless_calls import CallHead, Connection, InstanceCrashed

from runtimes.contract.instances import Instances

MIB = 1024 * 1024


async def scenario(address: str, crash_address: str) -> None:
    connection = await Connection.open(address, role="gateway", open_timeout=timedelta(seconds=20))
    plain = connection.call(CallHead(id="c"), b'{"do": "state"}')
    assert (await plain.reply()).end
    large = connection.call(CallHead(id="c"), json.dumps({"do": "whole", "size": 5 * MIB}).encode())
    assert len(await large.read()) == 5 * MIB
    upload = connection.call(CallHead(id="c"), b'{"do": "whole", "size": 1, "x": "', end=False)
    for _ in range(20):
        await upload.send(b"y" * 200_000)
    await upload.send(b'"}')
    upload.end()
    assert await upload.read() == b"x"
    stopped = connection.call(CallHead(id="c"), json.dumps({"count": 100_000, "size": 1000}).encode())
    async for _ in stopped.body():
        break
    async with asyncio.timeout(10):
        while connection.in_flight:
            await asyncio.sleep(0.005)
    await connection.close()
    crashing = await Connection.open(crash_address, role="gateway", open_timeout=timedelta(seconds=20))
    with pytest.raises(InstanceCrashed):
        await crashing.call(CallHead(id="c"), b'{"code": 1}').reply()


@pytest.mark.parametrize("name", ["stream", "async_stream"])
def test_calls_on_uvloop(instances: Instances, name: str) -> None:
    uvloop.run(scenario(instances.shared(name).address, instances.fresh("exit").address))
