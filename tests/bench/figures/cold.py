"""The two waits without dependencies: the first call of a function that has no instance, and an upload until it serves."""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench.figures.processes import bare_start_ms
from tests.bench.figures.table import Figure, middle
from tests.support.embedded import Platform, User, running_platform, until

PAIRS = 50
UPLOADS = 15
PEER = "`python3 -I -S -c 'print(1)'`"

HANDLERS = {
    "sync": "def handle(event):\n    return {'hello': 'world'}\n",
    "async": "async def handle(event):\n    return {'hello': 'world'}\n",
}
PYTHON = "python3"


def measure() -> Sequence[Figure]:
    """Medians of interleaved pairs."""
    with running_platform(SLESS_IDLE_SEC="1") as platform:
        user = platform.user()
        figures = [_cold(platform, user, kind, handler) for kind, handler in HANDLERS.items()]
        return [*figures, _upload(user)]


def _cold(platform: Platform, user: User, kind: str, handler: str) -> Figure:
    name = f"cold-{kind}"
    user.deploy(name, handler, replicas={"min": 0, "max": 1, "concurrency": 16})
    ours, theirs = [], []
    for _ in range(PAIRS):
        until(lambda: not _instances(platform) or None, "the function to be at zero", 30)
        ours.append(first_byte_ms(user.url(name)))
        theirs.append(bare_start_ms(PYTHON))
    user.request("DELETE", f"/services/{name}")
    return Figure(
        f"cold start, zero → first byte, {kind} handler", middle(ours), "ms", PEER, middle(theirs), "≤ 1.0",
        note=f"p50 of {PAIRS} pairs",
    )  # fmt: skip


def _upload(user: User) -> Figure:
    user.deploy("uploaded", HANDLERS["sync"])
    ours, theirs = [], []
    for number in range(UPLOADS):
        code = {"handler.py": f"{HANDLERS['sync']}\n# {number}\n"}
        began = time.perf_counter()
        answer = user.upload("uploaded", code)
        ours.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, answer.text
        theirs.append(bare_start_ms(PYTHON))
    return Figure(
        "upload → Ready, no dependencies", middle(ours), "ms", PEER, middle(theirs), "≤ 10", f"p50 of {UPLOADS}"
    )


def first_byte_ms(url: str) -> float:
    """From the connection's begin to the answer's first byte."""
    parts = urlsplit(url)
    began = time.perf_counter()
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    connection.request("GET", parts.path)
    answer = connection.getresponse()
    took = (time.perf_counter() - began) * 1000
    body = answer.read()
    connection.close()
    assert answer.status == 200, body
    return took


def _instances(platform: Platform) -> list[Path]:
    """What says that an instance is there: its socket, made before it and gone with it."""
    return list(platform.layout.instances.glob("*/instance.sock"))
