"""A RuntimeBackend without processes; whoever holds its machine decides what the instances do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from sless_platform.errors import InvalidArgument, PlatformError

from sless_runtime_manager.adapters.happenings import Happenings
from sless_runtime_manager.adapters.rules import explain_end, refuse_reserved
from sless_runtime_manager.errors import StartFailed
from sless_runtime_manager.ports import Happening, InstanceEnded, InstanceHandle, InstanceSpec, Isolation

_TAIL_CHARACTERS = 64 << 10


class MemoryMachine:
    """Where the instances "run"; outlives the backends that use it.

    specs       of all instances that are alive, by id; handles likewise.
    graces      how long each stopped instance would have had.
    refusal     raised by every start while it is set.
    address_of  gives an instance's address.
    """

    def __init__(
        self, address_of: Callable[[str], str] = lambda instance_id: f"unix:/memory/{instance_id}.sock"
    ) -> None:
        self.specs: dict[str, InstanceSpec] = {}
        self.handles: dict[str, InstanceHandle] = {}
        self.graces: dict[str, timedelta] = {}
        self.refusal: PlatformError | None = None
        self.address_of = address_of
        self.happenings = Happenings()
        self._tails: dict[str, str] = {}

    def start(self, spec: InstanceSpec) -> InstanceHandle:
        """An instance as the spec says. Raises `refusal`, and as a RuntimeBackend's `start`."""
        if self.refusal is not None:
            raise self.refusal
        if spec.instance_id in self.specs:
            raise InvalidArgument(f"the instance {spec.instance_id} runs already")
        self.specs[spec.instance_id] = spec
        handle = self.handles[spec.instance_id] = _handle(spec, self.address_of(spec.instance_id))
        return handle

    def print(self, instance_id: str, text: str, stream: Literal["stdout", "stderr"] = "stdout") -> None:
        """Have an instance print something."""
        self._tails[instance_id] = (self._tails.get(instance_id, "") + text)[-_TAIL_CHARACTERS:]
        self.happenings.put_output(instance_id, stream, text, 0)

    def end(
        self, instance_id: str, *, exit_code: int | None = None, signal: int | None = None, asked: bool = False
    ) -> None:
        """Have an instance end; nothing when it is gone already."""
        if self.specs.pop(instance_id, None) is None:
            return
        del self.handles[instance_id]
        message = explain_end(exit_code, signal, asked=asked)
        tail = self._tails.pop(instance_id, "")
        self.happenings.put_end(InstanceEnded(instance_id, exit_code, signal, message, tail))


class MemoryRuntimeBackend:
    """A RuntimeBackend (ports.py) on a MemoryMachine."""

    def __init__(self, machine: MemoryMachine | None = None) -> None:
        self.machine = machine or MemoryMachine()

    async def start(self, spec: InstanceSpec) -> InstanceHandle:
        """See RuntimeBackend."""
        if spec.runtime != "python3.11":
            raise StartFailed(f"there is no runtime {spec.runtime!r} here; there is python3.11")
        refuse_reserved(spec.env)
        return self.machine.start(spec)

    async def stop(self, instance_id: str, *, grace: timedelta) -> None:
        """See RuntimeBackend."""
        self.machine.graces[instance_id] = grace
        self.machine.end(instance_id, exit_code=0, asked=True)

    async def list(self) -> Sequence[InstanceHandle]:
        """See RuntimeBackend."""
        return list(self.machine.handles.values())

    async def events(self) -> AsyncIterator[Happening]:
        """See RuntimeBackend."""
        while True:
            yield await self.machine.happenings.get()

    async def isolation(self) -> Isolation:
        """See RuntimeBackend."""
        return Isolation(
            level="none",
            memory="approximate",
            processes="not limited",
            seccomp=False,
            network="host",
            reason="instances exist in memory only",
        )

    async def close(self) -> None:
        """See RuntimeBackend."""


def _handle(spec: InstanceSpec, address: str) -> InstanceHandle:
    return InstanceHandle(
        instance_id=spec.instance_id,
        address=address,
        started_at=datetime.now(UTC),
        function_uid=spec.function_uid,
        namespace=spec.namespace,
        name=spec.name,
        version=spec.version,
        generation=spec.generation,
        template=spec.template,
        max_concurrency=spec.max_concurrency,
    )
