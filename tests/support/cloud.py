"""A cloud whose tokens cannot be verified locally: it answers whether it takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Cloud:
    """What it answers to every token: `refused` ones 401, all others `status`, `body` and `headers`; held up by `gate`."""

    url: str = ""
    status: int = 200
    body: str = '{"user": "somebody"}'
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    refused: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        """One answer."""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.asked.append(token)
        await self.gate.wait()
        if token in self.refused:
            return web.json_response({"error": "no"}, status=401)
        return web.Response(status=self.status, text=self.body, headers=self.headers)


@asynccontextmanager
async def running_cloud() -> AsyncIterator[Cloud]:
    """A cloud that listens on a port of this machine."""
    cloud = Cloud()
    cloud.gate.set()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cloud.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    cloud.url = f"http://{host}:{port}/api/me"
    yield cloud
    cloud.gate.set()
    await runner.cleanup()
