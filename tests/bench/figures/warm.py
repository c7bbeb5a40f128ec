"""The plain warm call through the public URL, loaded by wrk, beside a hand-written server that answers the same."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.figures.processes import descendants, processor_sec
from tests.bench.figures.table import Figure, middle
from tests.support.embedded import Platform, User, running_platform, until

ROUNDS = 7
ROUND_SEC = 2
CONNECTIONS = 16

HANDLER = """
async def handle(event):
    return {"hello": event.get("name")}
"""
PEER = """
import json, sys
from aiohttp import web

async def handle(request):
    return web.json_response({"hello": (await request.json()).get("name")})

app = web.Application()
app.router.add_post("/", handle)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=lambda *_: None, access_log=None)
"""
BODY = '{"name": "someone", "filling": "' + "x" * 960 + '"}'
SCRIPT = f"""
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{BODY}'
"""


@dataclass(frozen=True, slots=True)
class Load:
    """One round: calls a second, the median latency in ms, and processor time a call in µs."""

    rate: float
    p50_ms: float
    cpu_us: float


def measure() -> Sequence[Figure]:
    """Calls a second and processor time a call; rounds of both interleaved, medians."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise SystemExit("wrk is missing: apt-get install wrk")
    with running_platform() as platform, tempfile.TemporaryDirectory() as folder, _peer(Path(folder)) as peer:
        script = Path(folder) / "post.lua"
        script.write_text(SCRIPT)
        user = platform.user()
        user.deploy("bench", HANDLER)
        ours: list[Load] = []
        theirs: list[Load] = []
        for number in range(ROUNDS + 1):
            loads = (
                _loaded(wrk, script, user.url("bench"), _serving(platform, user)),
                _loaded(wrk, script, peer.url, [peer.pid]),
            )
            if number:
                ours.append(loads[0])
                theirs.append(loads[1])
    name, peer_name = f"/fn, {CONNECTIONS} connections, 1 KiB JSON, async handler", "an aiohttp server of ten lines"
    return [
        Figure(
            f"{name}: calls", middle([load.rate for load in ours]), "/s", peer_name, middle([load.rate for load in theirs])
        ),
        Figure(
            f"{name}: p50", middle([load.p50_ms for load in ours]), "ms", peer_name, middle([load.p50_ms for load in theirs])
        ),
        Figure(
            f"{name}: CPU a call, gateway + invoker + instance", middle([load.cpu_us for load in ours]), "µs",
            peer_name, middle([load.cpu_us for load in theirs]),
        ),
    ]  # fmt: skip


def _serving(platform: Platform, user: User) -> list[int]:
    """The processes that a call passes."""
    assert user.fn("bench", method="POST", json={}).status_code == 200
    return [platform.pid("gateway"), platform.pid("invoker"), *descendants(platform.pid("launcher"))[1:]]


def _loaded(wrk: str, script: Path, url: str, pids: list[int]) -> Load:
    before = processor_sec(pids)
    command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{ROUND_SEC}s", "--latency", "-s", str(script), url]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    used = processor_sec(pids) - before
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", said)
    if failed:
        raise SystemExit(f"calls failed under load: {failed[0]}")
    rate, calls, p50 = (
        re.search(pattern, said)
        for pattern in (r"Requests/sec:\s+([\d.]+)", r"(\d+) requests in", r"50%\s+([\d.]+)(us|ms|s)")
    )
    if not (rate and calls and p50):
        raise SystemExit(f"wrk said what is not understood: {said}")
    return Load(float(rate[1]), float(p50[1]) * {"us": 0.001, "ms": 1, "s": 1000}[p50[2]], used / int(calls[1]) * 1e6)


@dataclass(frozen=True, slots=True)
class _Peer:
    url: str
    pid: int


@contextmanager
def _peer(folder: Path) -> Iterator[_Peer]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = folder / "peer.py"
    program.write_text(PEER)
    with subprocess.Popen([sys.executable, str(program), str(port)]) as process:
        try:
            until(lambda: _answers(port) or None, "the peer to listen", 20)
            yield _Peer(f"http://127.0.0.1:{port}/", process.pid)
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
