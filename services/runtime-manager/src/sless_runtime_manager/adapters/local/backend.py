"""Instances by the launcher of this machine."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, cast

from sless_platform.errors import InvalidArgument, PlatformError

from sless_runtime_manager.adapters.happenings import Happenings
from sless_runtime_manager.adapters.local.commands import Places, python_start
from sless_runtime_manager.adapters.local.interpreters import Interpreter, find_python311, inspect
from sless_runtime_manager.adapters.local.link import LauncherLink, Message
from sless_runtime_manager.adapters.local.manifest import Manifest, address_of
from sless_runtime_manager.adapters.rules import explain_end
from sless_runtime_manager.errors import InstancesExhausted, LauncherUnavailable, StartFailed
from sless_runtime_manager.ports import (
    Happening,
    InstanceEnded,
    InstanceHandle,
    InstanceListens,
    InstanceSpec,
    Isolation,
)

PYTHON_311 = "python3.11"

Exceeded = Literal["", "memory", "disk"]
_EXCEEDED = ("memory", "disk")

_QUICK = timedelta(seconds=5)
_START = timedelta(seconds=20)
_LOST = "the launcher ended, and this instance with it"


class LocalRuntimeBackend:
    """A RuntimeBackend (ports.py) over the launcher's socket.

    Instances that an earlier process of this service started are adopted: the launcher knows which are alive, and the manifest that
    it was given with each says what they are. One without a manifest belongs to nobody and is stopped.
    """

    def __init__(self, *, launcher_socket: Path, run_dir: Path, layers_dir: Path, python311: Path | None) -> None:
        """Opens nothing yet.

        launcher_socket  where the launcher listens.
        run_dir          the launcher's run folder.
        layers_dir       holds a folder for each unpacked layer, named by the digest's hexadecimal digits.
        python311        a Python 3.11; None: look for one when it is needed.
        """
        self._places = Places(run=run_dir, layers=layers_dir.resolve())
        self._python311 = python311
        self._interpreter: Interpreter | None = None
        self._isolation: Isolation | None = None
        self._link = LauncherLink(launcher_socket, on_event=self._take_event, on_connected=self._take_stock)
        self._happenings = Happenings()
        self._known: set[str] = set()
        self._starting: set[str] = set()
        self._told: set[str] = set()
        self._unconfirmed: set[str] = set()

    async def start(self, spec: InstanceSpec) -> InstanceHandle:
        """See RuntimeBackend."""
        request = python_start(spec, self._places, await self._python_for(spec))
        kept = Manifest.of(spec)
        if spec.instance_id in self._known:
            raise InvalidArgument(f"the instance {spec.instance_id} runs already", field="instance_id")
        with self._being_started(spec.instance_id):
            try:
                result = await self._link.call("start", within=_START, spec={**request, "note": kept.note()})
            except BaseException as error:
                if not isinstance(error, StartFailed | InstancesExhausted | InvalidArgument):
                    # It may run all the same: the answer was lost, or nobody waited for it.
                    self._link.tell("stop", instance_id=spec.instance_id, grace_ms=0)
                raise
        return _handle(kept, result)

    async def stop(self, instance_id: str, *, grace: timedelta) -> None:
        """See RuntimeBackend."""
        milliseconds = max(0, round(grace.total_seconds() * 1000))
        await self._link.call("stop", within=grace + _START, instance_id=instance_id, grace_ms=milliseconds)

    async def list(self) -> Sequence[InstanceHandle]:
        """See RuntimeBackend."""
        return [_handle(kept, told) for told, kept in await self._alive() if kept is not None and told["running"]]

    async def events(self) -> AsyncIterator[Happening]:
        """See RuntimeBackend. An end counts as told when the next event is asked for."""
        self._link.open()
        while True:
            happening = await self._happenings.get()
            yield happening
            if isinstance(happening, InstanceEnded):
                await self._confirm(happening.instance_id)

    async def isolation(self) -> Isolation:
        """See RuntimeBackend."""
        if self._isolation is None:
            self._isolation = _isolation(await self._link.call("isolation", within=_QUICK))
        return self._isolation

    async def close(self) -> None:
        """See RuntimeBackend."""
        await self._link.close()

    @contextlib.contextmanager
    def _being_started(self, instance_id: str) -> Iterator[None]:
        # Known before the launcher is asked: the instance's end may be told together with its start.
        self._known.add(instance_id)
        self._starting.add(instance_id)
        try:
            yield
        except BaseException:
            self._known.discard(instance_id)
            raise
        finally:
            self._starting.discard(instance_id)

    async def _alive(self) -> builtins.list[tuple[Message, Manifest | None]]:
        """What the launcher says of each of its instances, with its manifest."""
        told = await self._link.call("list", within=_QUICK)
        instances = cast(builtins.list[Message], told["instances"])
        return [(one, Manifest.from_note(one.get("note"))) for one in instances]

    async def _take_stock(self) -> None:
        """After each connect: adopt what runs, stop what is nobody's, tell the end of what has gone meanwhile."""
        self._isolation = None  # It may be another launcher.
        before = self._known - self._starting
        try:
            await self._link.call("seen", within=_QUICK, instance_ids=sorted(self._unconfirmed))
            self._told -= self._unconfirmed
            self._unconfirmed.clear()
            await self._link.call("follow", within=_QUICK)
            alive = await self._alive()
        except PlatformError:
            return  # The connection is lost again, and this will be done again after the next.
        for told, kept in alive:
            instance_id = str(told["instance_id"])
            before.discard(instance_id)
            if kept is not None:
                self._known.add(instance_id)
            elif instance_id not in self._starting:
                self._link.tell("stop", instance_id=instance_id, grace_ms=0)
        for instance_id in before & self._known:
            self._known.discard(instance_id)
            self._happenings.put_end(InstanceEnded(instance_id, None, None, _LOST, ""))

    def _take_event(self, event: Message) -> None:
        instance_id = str(event["instance_id"])
        if event["event"] == "output":
            stream = cast(Literal["stdout", "stderr"], event["stream"])
            self._happenings.put_output(instance_id, stream, str(event["text"]), cast(int, event["dropped"]))
        elif event["event"] == "listens":
            self._happenings.put_listening(InstanceListens(instance_id, address_of(str(event["socket"]))))
        elif event["event"] == "ended" and instance_id not in self._told:
            self._known.discard(instance_id)
            self._told.add(instance_id)
            self._happenings.put_end(_ended(event))

    async def _confirm(self, instance_id: str) -> None:
        """The launcher may forget this end; where it can't be told so now, it is after the next connect."""
        self._unconfirmed.add(instance_id)
        try:
            await self._link.call("seen", within=_QUICK, instance_ids=[instance_id])
        except LauncherUnavailable:
            return
        self._unconfirmed.discard(instance_id)
        self._told.discard(instance_id)

    async def _python_for(self, spec: InstanceSpec) -> Interpreter:
        if spec.runtime != PYTHON_311:
            raise StartFailed(f"there is no runtime {spec.runtime!r} here; there is {PYTHON_311}")
        if self._interpreter is None:
            self._interpreter = await asyncio.to_thread(self._inspect)
        return self._interpreter

    def _inspect(self) -> Interpreter:
        given = self._python311
        path, looked_at = (given, [str(given)]) if given is not None else find_python311(os.environ)
        found = None if path is None else inspect(path)
        if found is None or found.version != (3, 11):
            raise StartFailed(f"runtime {PYTHON_311} needs a Python 3.11; looked at {', '.join(looked_at)}")
        return found


def _handle(kept: Manifest, told: Message) -> InstanceHandle:
    return kept.handle(str(told["socket"]), datetime.fromtimestamp(cast(float, told["started_at"]), UTC))


def _isolation(told: Message) -> Isolation:
    return Isolation(
        level=str(told["level"]),
        memory=str(told["memory"]),
        processes=str(told["processes"]),
        seccomp=bool(told["seccomp"]),
        network=str(told["network"]),
        reason=str(told["reason"]),
    )


def _ended(event: Message) -> InstanceEnded:
    exit_code, number = cast(int | None, event["exit_code"]), cast(int | None, event["signal"])
    exceeded = cast(Exceeded, event["reason"] if event["reason"] in _EXCEEDED else "")
    message = explain_end(exit_code, number, asked=event["reason"] == "stopped", exceeded=exceeded)
    return InstanceEnded(str(event["instance_id"]), exit_code, number, message, str(event["tail"]), exceeded)
