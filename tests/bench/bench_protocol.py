"""What a start and a plain warm call of the Python runtime cost, beside their peers in the same run.

    python tests/bench/bench_protocol.py [rounds]

Rounds are interleaved and medians are shown, so that what else the machine does falls on all alike. `cpu` is the
processor time of the instance a call, where nothing else runs in it.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from sless_calls import CallHead, Connection  # noqa: E402

from runtimes.contract.client import Client  # noqa: E402
from runtimes.contract.harness import RUNTIMES, start  # noqa: E402

CODE = """
def handle(event):
    return {"hello": event.get("name")}

async def handle_async(event):
    return {"hello": event.get("name")}
"""
BODY = b'{"name": "someone", "filling": "' + b"x" * 960 + b'"}'
HEAD = CallHead(
    id="01J00000000000000000000000",
    path="/",
    headers=[("host", "localhost"), ("content-type", "application/json"), ("accept", "*/*"), ("user-agent", "bench")],
    deadline_ms=30_000,
)
CALLS = 2_000


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder)
        (code / "handler.py").write_text(CODE)
        show_starts(starts(code, rounds))
        asyncio.run(calls(code, rounds))


def starts(code: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds, of the clock and of the processor, from the fork to HELLO; and of a Python that only prints."""
    python = RUNTIMES[0].command[0]
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds + 1):
        began = time.perf_counter()
        child = subprocess.Popen([python, "-I", "-S", "-c", "print(1)"], stdout=subprocess.DEVNULL)
        usage = os.wait4(child.pid, 0)[2]
        child.returncode = 0
        wall = time.perf_counter() - began
        found.setdefault("python3 -I -S -c print(1)", []).append((wall, usage.ru_utime + usage.ru_stime))
        for name, entrypoint in (("sync handler", "handler.handle"), ("async handler", "handler.handle_async")):
            began = time.perf_counter()
            instance = start(RUNTIMES[0], entrypoint, code=code)
            with Client(instance.path):
                wall = time.perf_counter() - began
                found.setdefault(name, []).append((wall, processor_seconds(instance.process.pid)))
            instance.stop()
    return {name: measured[1:] for name, measured in found.items()}


def show_starts(found: dict[str, list[tuple[float, float]]]) -> None:
    base = middle(found["python3 -I -S -c print(1)"])
    print(f"start to HELLO{'':24}median ms    ratio   cpu ms    ratio")
    for name, measured in found.items():
        wall, cpu = middle(measured)
        print(f"  {name:<34}{wall * 1000:11.1f}{wall / base[0]:9.2f}{cpu * 1000:9.1f}{cpu / base[1]:9.2f}")


def middle(measured: list[tuple[float, float]]) -> tuple[float, float]:
    return median(wall for wall, _ in measured), median(cpu for _, cpu in measured)


async def calls(code: Path, rounds: int) -> None:
    """Microseconds a plain call, for both kinds of handlers, one and sixteen at a time, and of a bare echo."""
    found: dict[str, list[tuple[float, float]]] = {}
    echo = await EchoPeer.start()
    instances = {
        "async": start(RUNTIMES[0], "handler.handle_async", code=code),
        "sync": start(RUNTIMES[0], "handler.handle", code=code),
    }
    connections = {
        name: await Connection.open(one.address, role="gateway", open_timeout=timedelta(seconds=20))
        for name, one in instances.items()
    }
    for _ in range(rounds):
        found.setdefault("bare asyncio echo, 1 at a time", []).append(await timed(echo.exchange, 1, echo.pid))
        for width in (1, 16):
            for name, connection in connections.items():
                measured = await timed(caller(connection), width, instances[name].process.pid)
                found.setdefault(f"{name} handler, {width} at a time", []).append(measured)
    show_calls(found)
    for connection in connections.values():
        await connection.close()
    for instance in instances.values():
        instance.stop()
    await echo.stop()


def caller(connection: Connection) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        if (await connection.call(HEAD, BODY).reply()).status != 200:
            raise RuntimeError("a call failed")

    return call


async def timed(call: Callable[[], Awaitable[None]], width: int, pid: int) -> tuple[float, float]:
    async def many() -> None:
        for _ in range(CALLS // width):
            await call()

    cpu, began = processor_seconds(pid), time.perf_counter()
    await asyncio.gather(*(many() for _ in range(width)))
    return (time.perf_counter() - began) / CALLS, (processor_seconds(pid) - cpu) / CALLS


def processor_seconds(pid: int) -> float:
    """User and system time of a process's threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def show_calls(found: dict[str, list[tuple[float, float]]]) -> None:
    base = middle(found["bare asyncio echo, 1 at a time"])
    print(f"\na call of 1 KiB{'':23}median µs    ratio   cpu µs    ratio")
    for name, measured in found.items():
        wall, cpu = middle(measured)
        print(f"  {name:<34}{wall * 1e6:11.0f}{wall / base[0]:9.2f}{cpu * 1e6:9.0f}{cpu / base[1]:9.2f}")


class EchoPeer:
    """A process that answers each line of 1 KiB on a unix socket, by asyncio's own transports."""

    SOURCE = """
import asyncio, sys

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

async def main():
    server = await asyncio.get_running_loop().create_unix_server(Echo, sys.argv[1])
    print("ready", flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

    def __init__(self, process: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
        self._process = process
        self._folder = folder
        self.pid = process.pid

    @classmethod
    async def start(cls) -> "EchoPeer":
        folder = tempfile.TemporaryDirectory()
        path = f"{folder.name}/echo.sock"
        process = subprocess.Popen([RUNTIMES[0].command[0], "-I", "-S", "-c", cls.SOURCE, path], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        peer = cls(process, folder)
        peer._reader, peer._writer = await asyncio.open_unix_connection(path)
        return peer

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    async def exchange(self) -> None:
        self._writer.write(BODY)
        await self._reader.readexactly(len(BODY))

    async def stop(self) -> None:
        self._writer.close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


if __name__ == "__main__":
    main()
