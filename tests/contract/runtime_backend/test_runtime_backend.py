"""What every RuntimeBackend does: one suite for the launcher's and the one in memory."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest
from sless_platform.errors import InvalidArgument
from sless_runtime_manager.adapters.local import LocalRuntimeBackend
from sless_runtime_manager.adapters.local.interpreters import find_python311
from sless_runtime_manager.adapters.memory import MemoryRuntimeBackend
from sless_runtime_manager.adapters.memory.backend import MemoryMachine
from sless_runtime_manager.errors import StartFailed
from sless_runtime_manager.ports import (
    InstanceEnded,
    InstanceHandle,
    InstanceListens,
    InstanceOutput,
    InstanceSpec,
    RuntimeBackend,
)

from tests.support.launcher import Conditions, Launcher, running_launcher

PATIENCE_SEC = 20
NO_GRACE = timedelta(0)
BASE, CODE = (f"sha256:{letters * 32}" for letters in ("ba", "ab"))

# Stands in for the runtime: does what it is told over its socket.
OBEDIENT = """
import os, socket
listener = socket.socket(fileno=int(os.environ["SLESS_LISTEN_FD"]))
while True:
    connection, _ = listener.accept()
    with connection:
        word, _, argument = connection.recv(1000).decode().partition(" ")
        if word == "print":
            print(argument, end="", flush=True)
        elif word == "exit":
            os._exit(int(argument))
        elif word == "kill":
            os.kill(os.getpid(), int(argument))
        connection.sendall(b"done")
"""


class Machine(Protocol):
    """What runs the instances; outlives its backends."""

    def backend(self) -> RuntimeBackend:
        """A backend as a new process of the service would make it."""
        ...

    async def tell(self, handle: InstanceHandle, word: str, argument: str) -> None:
        """Have the instance `print`, `exit` or `kill` itself."""
        ...


class InMemory:
    def __init__(self) -> None:
        self._machine = MemoryMachine()

    def backend(self) -> RuntimeBackend:
        return MemoryRuntimeBackend(self._machine)

    async def tell(self, handle: InstanceHandle, word: str, argument: str) -> None:
        if word == "print":
            self._machine.print(handle.instance_id, argument)
        elif word == "exit":
            self._machine.end(handle.instance_id, exit_code=int(argument))
        else:
            self._machine.end(handle.instance_id, signal=int(argument))


class OnThisMachine:
    def __init__(self, launcher: Launcher, python311: Path | None) -> None:
        self._launcher = launcher
        self._python311 = python311
        for digest in (BASE, CODE):
            (launcher.data / "layers" / digest.removeprefix("sha256:")).mkdir(parents=True)
        (launcher.data / "layers" / BASE.removeprefix("sha256:") / "main.py").write_text(OBEDIENT)

    def backend(self) -> RuntimeBackend:
        return LocalRuntimeBackend(
            launcher_socket=self._launcher.socket,
            run_dir=self._launcher.run,
            layers_dir=self._launcher.data / "layers",
            python311=self._python311,
        )

    async def tell(self, handle: InstanceHandle, word: str, argument: str) -> None:
        reader, writer = await asyncio.open_unix_connection(handle.address.removeprefix("unix:"))
        writer.write(f"{word} {argument}".encode())
        with suppress(ConnectionError):
            await reader.read()
        writer.close()


@pytest.fixture(scope="module")
def python311() -> Path | None:
    return find_python311(os.environ)[0]


@pytest.fixture(params=["memory", "local"])
async def machine(request: pytest.FixtureRequest, python311: Path | None) -> AsyncIterator[Machine]:
    if request.param == "memory":
        yield InMemory()
        return
    with running_launcher(Conditions("own", os.getuid())) as launcher:
        yield OnThisMachine(launcher, python311)


@pytest.fixture
async def backend(machine: Machine) -> AsyncIterator[RuntimeBackend]:
    made = machine.backend()
    yield made
    await made.close()


def spec(number: int = 1) -> InstanceSpec:
    return InstanceSpec(
        instance_id=f"i-{number:016x}",
        function_uid="fn-uid",
        namespace="sless-0123456789abcdef",
        uid_index=0,
        name="hello",
        version=3,
        generation=7,
        template="digest",
        runtime="python3.11",
        entrypoint="handler.handle",
        layers=(BASE, CODE),
        memory_mb=128,
        max_concurrency=16,
        env={"GREETING": "secret-hello"},
        grace=timedelta(seconds=5),
    )


Happened = InstanceEnded | InstanceOutput


@asynccontextmanager
async def watching(backend: RuntimeBackend) -> AsyncIterator[Callable[[], Awaitable[Happened]]]:
    """The backend's events, each awaited with a limit; not that an instance listens, which not every backend tells."""
    async with aclosing(backend.events()) as events:  # type: ignore[type-var]

        async def following() -> Happened:
            async with asyncio.timeout(PATIENCE_SEC):
                async for event in events:
                    if not isinstance(event, InstanceListens):
                        return event
            raise AssertionError("the events ended")

        yield following


async def test_a_started_instance_is_what_was_asked_for(backend: RuntimeBackend) -> None:
    before = datetime.now(UTC)
    handle = await backend.start(spec())
    assert before - timedelta(seconds=1) <= handle.started_at <= datetime.now(UTC) + timedelta(seconds=1)
    assert handle.address.startswith("unix:/")
    asked = spec()
    for name in (
        "instance_id",
        "function_uid",
        "namespace",
        "name",
        "version",
        "generation",
        "template",
        "max_concurrency",
    ):
        assert getattr(handle, name) == getattr(asked, name)
    assert list(await backend.list()) == [handle]


async def test_several_instances_run_at_once(backend: RuntimeBackend) -> None:
    handles = await asyncio.gather(*(backend.start(spec(number)) for number in range(5)))
    assert len({handle.address for handle in handles}) == 5
    assert {handle.instance_id for handle in await backend.list()} == {handle.instance_id for handle in handles}


async def test_a_stopped_instance_is_gone_and_its_end_is_told(backend: RuntimeBackend) -> None:
    async with watching(backend) as following:
        handle = await backend.start(spec())
        await backend.stop(handle.instance_id, grace=timedelta(seconds=5))
        assert list(await backend.list()) == []
        ended = await following()
    assert isinstance(ended, InstanceEnded)
    assert (ended.instance_id, ended.message) == (handle.instance_id, "stopped")


async def test_stopping_what_is_gone_is_no_error(backend: RuntimeBackend) -> None:
    await backend.stop("i-0000000000000bad", grace=NO_GRACE)
    handle = await backend.start(spec())
    await backend.stop(handle.instance_id, grace=NO_GRACE)
    await backend.stop(handle.instance_id, grace=NO_GRACE)

    assert list(await backend.list()) == []


async def test_an_exit_is_told_with_its_code_and_last_words(machine: Machine, backend: RuntimeBackend) -> None:
    async with watching(backend) as following:
        handle = await backend.start(spec())
        await machine.tell(handle, "print", "last words")
        assert await following() == InstanceOutput(handle.instance_id, "stdout", "last words")
        await machine.tell(handle, "exit", "3")
        ended = await following()
    assert isinstance(ended, InstanceEnded)
    assert (ended.exit_code, ended.signal, ended.tail) == (3, None, "last words")
    assert ended.message == "the process ended by itself with exit code 3"
    assert list(await backend.list()) == []


async def test_a_crash_is_told_with_its_signal(machine: Machine, backend: RuntimeBackend) -> None:
    async with watching(backend) as following:
        handle = await backend.start(spec())
        await machine.tell(handle, "kill", str(int(signal.SIGSEGV)))
        ended = await following()
    assert isinstance(ended, InstanceEnded)
    assert (ended.exit_code, ended.signal) == (None, signal.SIGSEGV)
    assert ended.message == "the process crashed (SIGSEGV)"


async def test_one_id_runs_once(backend: RuntimeBackend) -> None:
    handle = await backend.start(spec())
    with pytest.raises(InvalidArgument, match="runs already"):
        await backend.start(spec())
    assert list(await backend.list()) == [handle]


async def test_the_platforms_variables_are_not_the_users(backend: RuntimeBackend) -> None:
    with pytest.raises(InvalidArgument, match="rename SLESS_ENTRYPOINT"):
        await backend.start(replace(spec(), env={"SLESS_ENTRYPOINT": "other.handle"}))
    assert list(await backend.list()) == []


async def test_a_runtime_that_is_not_here_cannot_be_started(backend: RuntimeBackend) -> None:
    with pytest.raises(StartFailed, match=r"no runtime 'cobol85' here; there is python3\.11"):
        await backend.start(replace(spec(), runtime="cobol85"))
    assert list(await backend.list()) == []


async def test_instances_outlive_the_backend_and_are_adopted(machine: Machine) -> None:
    first = machine.backend()
    handle = await first.start(spec())
    await first.close()
    second = machine.backend()
    assert list(await second.list()) == [handle]
    async with watching(second) as following:
        await machine.tell(handle, "exit", "1")
        ended = await following()
    assert (ended.instance_id, list(await second.list())) == (handle.instance_id, [])
    await second.close()


async def test_an_end_while_nobody_looked_is_told_once(machine: Machine) -> None:
    first = machine.backend()
    handle = await first.start(spec(1))
    await first.close()
    await machine.tell(handle, "exit", "4")
    second = machine.backend()
    async with watching(second) as following:
        ended = await following()
        assert isinstance(ended, InstanceEnded)
        assert (ended.instance_id, ended.exit_code) == (handle.instance_id, 4)
        other = await second.start(spec(2))
        await second.stop(other.instance_id, grace=NO_GRACE)
        assert (await following()).instance_id == other.instance_id
    await second.close()


async def test_it_tells_what_separates_instances(backend: RuntimeBackend) -> None:
    isolation = await backend.isolation()
    assert isolation.level in ("namespaces", "none")
    assert isolation.memory in ("control group v1", "control group v2", "approximate")
    assert isolation.processes in (isolation.memory, "counted for each user", "not limited")
    assert isolation.network == "host"
    assert bool(isolation.reason) or isolation.level == "namespaces"
