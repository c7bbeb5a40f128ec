"""A parent that has imported the whole platform may fork services that serve and call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

IMPORT_ALL = """
import asyncio, importlib, os, pkgutil, threading
import sless_platform
for module in pkgutil.walk_packages(sless_platform.__path__, "sless_platform."):
    importlib.import_module(module.name)
"""

UNTOUCHED = (
    IMPORT_ALL
    + """
assert len(os.listdir("/proc/self/task")) == 1, "a thread was started"
assert threading.active_count() == 1
assert asyncio.get_event_loop_policy()._local._loop is None, "an event loop was made"
links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
assert not [link for link in links if "eventpoll" in link or "eventfd" in link or "socket" in link], links
"""
)

FORKED = (
    IMPORT_ALL
    + """
import sys
from datetime import timedelta
from pathlib import Path
from sless_platform import process, telemetry
from sless_platform.rpc.client import RpcChannel
from tests.support.rpc import Echo, EchoStub, outcome, running_echo, METHODS

folder = Path(sys.argv[1])

async def single(request, _context):
    return b"pong"

async def stream(request, _context):
    yield b"pong"

async def serve(ready):
    async with running_echo(Echo(single, stream, single, stream), folder):
        async with process.stop_signals() as stop:
            process.notify_ready(ready)
            await stop.wait()

async def call():
    async with RpcChannel(f"unix:{folder}/echo.sock") as channel:
        for method in METHODS:
            assert await outcome(EchoStub(channel.channel), method) == b"pong"

def child(main, *args):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            process.run(main, *args)
            code = 0
        finally:
            os._exit(code)
    return pid

read, write = os.pipe()
server = child(serve, write)
os.close(write)
assert os.read(read, 64) == b"READY\\n"
client = child(call)
assert os.waitstatus_to_exitcode(os.waitpid(client, 0)[1]) == 0, "the client failed"
os.kill(server, 15)
assert os.waitstatus_to_exitcode(os.waitpid(server, 0)[1]) == 0, "the server failed"
assert os.listdir(folder) == []
"""
)


def _run(program: str, *args: str) -> None:
    root = Path(__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, "-c", program, *args], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_importing_everything_starts_nothing() -> None:
    _run(UNTOUCHED)


def test_forked_children_serve_and_call(tmp_path: Path) -> None:
    _run(FORKED, str(tmp_path))
