"""A real runtime-manager in a process of its own: with a real launcher, the real Python runtime, a registry in this process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from sless.registry.v1 import registry_pb2
from sless.runtime_manager.v1 import runtime_manager_pb2 as pb
from sless.runtime_manager.v1.runtime_manager_pb2_grpc import RuntimeManagerServiceStub
from sless_calls import CallHead, InstanceAddress, InstanceSet, NotSent, Refused
from sless_contracts import wire
from sless_platform.errors import Unavailable
from sless_platform.identity import IdentitySigner, Principal
from sless_platform.rpc.client import IdentitySource, RpcChannel, ServiceIdentity, UserIdentity

from tests.support.builder import python311
from tests.support.launcher import Conditions, Launcher, running_launcher
from tests.support.registry import NAMESPACE, SUB, RunningRegistry

SERVICE = "runtime-manager"
LIMIT_SEC = 60
RUNTIME = Path(__file__).parents[2] / "runtimes" / "python3.11"


async def until(condition: Callable[[], Any], what: str, limit_sec: float = LIMIT_SEC) -> None:
    """Wait for a condition, which may be a coroutine function."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_sec):
            while True:
                found = condition()
                if await found if isinstance(found, Awaitable) else found:
                    return
                await asyncio.sleep(0.01)
    raise AssertionError(f"not within {limit_sec:g} s: {what}")


@dataclass
class Place:
    """What outlives a runtime-manager: launcher, registry, folders."""

    launcher: Launcher
    registry: RunningRegistry
    folder: Path
    variables: dict[str, object] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """Where the runtime-manager listens."""
        return f"unix:{self.folder}/sock"

    @property
    def instance_folders(self) -> list[Path]:
        """The run folder's instances."""
        return sorted(path for path in self.launcher.run.iterdir() if path.name.startswith("i-"))

    async def without(self, instances: set[str]) -> None:
        """Wait until these instances are gone."""
        await until(
            lambda: instances.isdisjoint(folder.name for folder in self.instance_folders), f"{instances} are gone"
        )

    def log(self, uid: str) -> Path:
        """The function's log."""
        return self.folder / "logs" / f"{uid}.log"

    def log_text(self, uid: str) -> str:
        """What is in it; nothing when there is none."""
        return self.log(uid).read_text() if self.log(uid).exists() else ""

    def channel(self, identity: IdentitySource | None) -> RpcChannel:
        """A channel to the runtime-manager."""
        return RpcChannel(self.target, identity=identity, identity_metadata=wire.IDENTITY_METADATA)

    def service(self, name: str) -> ServiceIdentity:
        """A service that speaks for itself to the runtime-manager."""
        return ServiceIdentity(IdentitySigner(self.registry.keys.private[name], name), name, SERVICE)

    def user(self, *roles: str) -> UserIdentity:
        """A user, as auth says who calls the runtime-manager."""
        signer = IdentitySigner(self.registry.keys.private[wire.USER_ISSUER], wire.USER_ISSUER)
        principal = Principal(SUB, NAMESPACE, frozenset(roles))
        return UserIdentity(signer.sign(principal, SERVICE, timedelta(minutes=5), datetime.now(UTC)))

    def environment(self, **variables: object) -> dict[str, str]:
        """A runtime-manager's."""
        keys = self.registry.keys
        values = {
            "SLESS_LISTEN": self.target,
            "SLESS_LOG_LEVEL": "info",
            "SLESS_LOG_JSON": "true",
            "SLESS_IDENTITY_KEY": keys.private[SERVICE],
            "SLESS_IDENTITY_PUBLIC_KEYS": json.dumps(keys.public),
            "SLESS_REGISTRY_TARGET": self.registry.target,
            "SLESS_LAUNCHER_SOCKET": self.launcher.socket,
            "SLESS_RUN_DIR": self.launcher.run,
            "SLESS_LAYERS_DIR": self.launcher.data / "layers",
            "SLESS_PYTHON311": python311(),
            "SLESS_LOGS_DIR": self.folder / "logs",
            **self.variables,
            **variables,
        }
        return {"PATH": os.defpath, **{name: str(value) for name, value in values.items()}}

    def layer(self, files: dict[str, str]) -> str:
        """A layer, unpacked; its digest."""
        digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
        for name, text in files.items():
            path = self.launcher.data / "layers" / digest / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(text)
        return f"sha256:{digest}"

    async def create(self, name: str, code: str, **fields: Any) -> registry_pb2.Function:
        """A function with `code` as its handler.py, uploaded and built."""
        function = await self.registry.create(name, **fields)
        await self.upload(name, code)
        return function

    async def upload(self, name: str, code: str) -> None:
        """One more version, built."""
        runtime = self.layer({str(path.relative_to(RUNTIME)): path.read_text() for path in RUNTIME.rglob("*.py")})
        version = (await self.registry.upload(name, code)).version
        await self.registry.built(version, layers=[runtime, self.layer({"handler.py": code})])

    async def update(self, name: str, **fields: Any) -> None:
        """Change configuration."""
        function = registry_pb2.Function(namespace=NAMESPACE, name=name, **fields)
        await self.registry.user().UpdateFunction(
            registry_pb2.UpdateFunctionRequest(function=function, update_mask=FieldMask(paths=list(fields)))
        )

    async def delete(self, name: str) -> None:
        """Delete."""
        request = registry_pb2.DeleteFunctionRequest(namespace=NAMESPACE, name=name)
        await self.registry.user().DeleteFunction(request)

    async def outcome(self, name: str, limit_sec: float = LIMIT_SEC) -> registry_pb2.Function:
        """The function once its newest generation is ready or has failed."""

        async def known() -> bool:
            function = await self.registry.get(name)
            return function.observed_generation == function.generation

        await until(known, f"the outcome of {name} is known", limit_sec)
        return await self.registry.get(name)

    async def ready(self, name: str) -> registry_pb2.Function:
        """The function once its newest generation is ready."""
        function = await self.outcome(name)
        assert function.phase == registry_pb2.PHASE_READY, function.message
        return function

    async def failed(self, name: str) -> str:
        """Why the newest generation has failed."""
        function = await self.outcome(name)
        assert function.phase == registry_pb2.PHASE_FAILED
        return function.message


@dataclass
class RuntimeManagerProcess:
    """One life of the service."""

    place: Place
    process: subprocess.Popen[bytes]

    @property
    def output(self) -> str:
        """What it wrote on stderr."""
        return (self.place.folder / "stderr").read_text()

    def kill(self) -> None:
        """SIGKILL, and its end."""
        self.process.kill()
        self.process.wait(LIMIT_SEC)

    def terminate(self) -> int:
        """SIGTERM, and its end; the exit code."""
        self.process.terminate()
        return self.process.wait(LIMIT_SEC)

    async def died(self) -> None:
        """Wait until it has ended by itself, by SIGKILL."""
        await until(lambda: self.process.poll() is not None, "the runtime-manager has ended")
        assert self.process.returncode == -signal.SIGKILL


@contextmanager
def a_process(place: Place, **variables: object) -> Iterator[RuntimeManagerProcess]:
    """A runtime-manager that is ready to be called."""
    reading, writing = os.pipe()
    with (place.folder / "stderr").open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "sless_runtime_manager"],
            env=place.environment(SLESS_READY_FD=writing, **variables),
            pass_fds=[writing],
            stderr=stderr,
        )
    os.close(writing)
    running = RuntimeManagerProcess(place, process)
    try:
        with os.fdopen(reading) as ready:
            assert ready.readline() == "READY\n", running.output
        yield running
    finally:
        running.kill()


class Caller:
    """Calls functions as an invoker does: follows instances, acknowledges, asks for some when there are none."""

    def __init__(self, place: Place) -> None:
        self._channel = place.channel(place.service("invoker"))
        self._stub = RuntimeManagerServiceStub(self._channel.channel)
        self._pools: dict[str, InstanceSet] = {}
        self._changed = asyncio.Event()
        self._activity: dict[str, int] = {}
        self._running: Counter[str] = Counter()
        self.sets: dict[str, pb.InstanceSet] = {}
        self.history: list[pb.InstanceSet] = []
        self.resets = 0

    def serving(self, uid: str) -> set[str]:
        """The function's instances that take calls."""
        return {one.instance_id for one in self.sets[uid].instances} if uid in self.sets else set()

    async def follow(self) -> None:
        """Until cancelled; again whenever the runtime-manager was away."""
        while True:
            with suppress(Unavailable):
                await self._follow()
            await asyncio.sleep(0.05)

    async def ensure(self, uid: str, concurrency: int = 1) -> None:
        """EnsureInstances."""
        await self._stub.EnsureInstances(pb.EnsureInstancesRequest(function_uid=uid, concurrency=concurrency))

    async def call(self, uid: str, event: object = None) -> Any:
        """The handler's answer. Waits for an instance; never sends a call twice."""
        body = json.dumps({} if event is None else event).encode()
        head = CallHead(id="c", headers=[("content-type", "application/json")], deadline_ms=30_000)
        self._running[uid] += 1
        try:
            async with asyncio.timeout(LIMIT_SEC):
                return await self._call(uid, head, body)
        finally:
            self._running[uid] -= 1

    async def _call(self, uid: str, head: CallHead, body: bytes) -> Any:
        while True:
            connection = await self._pool(uid).acquire_opening()
            if connection is None:
                await self._wait_for_change(uid)
                continue
            with suppress(NotSent, Refused):
                call = connection.call(head, body)
                reply = await call.reply()
                assert reply.status == 200, await call.read()
                self._activity[uid] = self._running[uid]
                return json.loads(await call.read())

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.close()
        await self._channel.close()

    async def _wait_for_change(self, uid: str) -> None:
        self._changed.clear()
        if not self.serving(uid):
            with suppress(Unavailable):
                await self.ensure(uid, self._running[uid])
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await self._changed.wait()

    async def _follow(self) -> None:
        stream: Any = self._stub.WatchInstances()
        await stream.write(pb.WatchInstancesRequest())
        async for batch in stream:
            if batch.reset:
                self.resets += 1
                named = {one.function_uid for one in batch.sets}
                for uid in self.sets.keys() - named:
                    self._apply(pb.InstanceSet(function_uid=uid))
            for changed in batch.sets:
                self._apply(changed)
            activity = [pb.Activity(function_uid=uid, concurrency=number) for uid, number in self._activity.items()]
            self._activity.clear()
            await stream.write(pb.WatchInstancesRequest(acknowledged_revision=batch.revision, activities=activity))

    def _apply(self, changed: pb.InstanceSet) -> None:
        self.sets[changed.function_uid] = changed
        self.history.append(changed)
        self._pool(changed.function_uid).update(
            [InstanceAddress(one.instance_id, one.address, one.max_concurrency) for one in changed.instances]
        )
        self._changed.set()

    def _pool(self, uid: str) -> InstanceSet:
        if uid not in self._pools:
            self._pools[uid] = InstanceSet(role="invoker", open_timeout=timedelta(seconds=5))
        return self._pools[uid]


@asynccontextmanager
async def a_place(registry: RunningRegistry, **variables: object) -> AsyncIterator[Place]:
    """A launcher and folders of its own; somebody lets the registry's fences pass."""
    folder = Path(tempfile.mkdtemp(prefix="rm-", dir="/tmp"))
    try:
        with running_launcher(Conditions("own", os.getuid())) as launcher:
            async with registry.invoker():
                yield Place(launcher, registry, folder, dict(variables))
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def a_caller(place: Place) -> AsyncIterator[Caller]:
    """A caller that follows."""
    caller = Caller(place)
    following = asyncio.create_task(caller.follow())
    try:
        yield caller
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await caller.close()


@asynccontextmanager
async def followed_process(place: Place, caller: Caller, **variables: object) -> AsyncIterator[RuntimeManagerProcess]:
    """A runtime-manager that the caller follows already."""
    resets = caller.resets
    with a_process(place, **variables) as running:
        await until(lambda: caller.resets > resets, "the caller is told of instances")
        yield running
