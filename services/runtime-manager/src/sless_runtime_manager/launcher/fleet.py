"""All instances: started, drained, reaped, ended in time; what became of them is told to whoever asked and to all who follow."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Iterable

from . import nursery, reaper
from .admission import Admission
from .client import Client
from .confinement import Confinement, memory_bytes
from .folder import RunFolder
from .instance import Instance, launch, occupy
from .nursery import Nursery
from .patrol import Patrol
from .protocol import INVALID, RequestError, StartSpec
from .rootfs import Roots
from .watchdog import Bounds

UNSEEN_ENDS = 1024
"""Ends remembered until a client has seen them; past that the oldest is forgotten."""

_UNSEEN_TAIL = 8 << 10
_STRAYS = 256

Waiting = tuple[Client, object]
"""A client and the id of its request that waits for an answer."""


class Fleet:
    """Instances by id. Watches their descriptors with the loop's selector, whose keys carry (instance, descriptor)."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        confinement: Confinement,
        roots: Roots | None,
        run_folder: RunFolder,
        null: int,
        *,
        admission: Admission,
    ) -> None:
        self.clients: list[Client] = []
        self._selector = selector
        self._confinement = confinement
        self._roots = roots
        self._run_folder = run_folder
        self._null = null
        self._admission = admission
        self._by_id: dict[str, Instance] = {}
        self._by_pid: dict[int, Instance] = {}
        self._starts: dict[str, Waiting] = {}
        self._stops: dict[str, list[Waiting]] = {}
        self._unseen: dict[str, dict[str, object]] = {}
        self._anew: list[Instance] = []
        """Those whose blank came to nothing."""
        self._strays: dict[int, int] = {}
        """How processes ended of which it is not known (yet) whose they were: zygotes, and blanks that ended early."""
        self._nursery = None
        if roots is not None and nursery.supported():
            self._nursery = Nursery(selector, confinement, roots, null)
        self._helpers: set[int] = set()
        self._patrol = Patrol(selector, self._helpers, self._uses_too_much)

    def __len__(self) -> int:
        return len(self._by_id)

    def start(self, spec: StartSpec, waiting: Waiting) -> None:
        """Begin to start an instance; answered when its program runs or has failed to. Raises RequestError."""
        if spec.instance_id in self._by_id:
            raise RequestError(INVALID, f"the instance {spec.instance_id} runs already")
        self._admission.check(memory_bytes(spec), self._by_id.values())
        instance = self._launch(spec)
        self._keep(instance)
        self._tell_followers({"event": "listens", "instance_id": spec.instance_id, "socket": instance.socket})
        self._starts[spec.instance_id] = waiting
        self._unseen.pop(spec.instance_id, None)

    def _launch(self, spec: StartSpec) -> Instance:
        folder = self._run_folder.folder_of(spec.instance_id)
        blank = None if self._nursery is None else self._nursery.blank_for(spec)
        if blank is not None and self._roots is not None:
            # What a blank does not come to, for whatever reason, the program may.
            with contextlib.suppress(OSError):
                return occupy(blank, spec, self._roots, folder)
        return launch(spec, self._confinement, self._roots, folder, self._null)

    def _keep(self, instance: Instance) -> None:
        self._by_id[instance.instance_id] = instance
        if instance.pid:
            self._note_pid(instance)
        for descriptor in (instance.status, *instance.pipes):
            self._selector.register(descriptor, selectors.EVENT_READ, (instance, descriptor))

    def stop(self, instance_id: str, grace: float, waiting: Waiting) -> None:
        """End an instance; answered when it is gone, at once when it is gone already."""
        instance = self._by_id.get(instance_id)
        if instance is None:
            _answer(waiting, {})
            return
        self._stops.setdefault(instance_id, []).append(waiting)
        instance.end(grace)

    def stop_all(self, grace: float) -> None:
        """End every instance, and whatever waits to become one."""
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None
        for instance in self._by_id.values():
            instance.end(grace)

    def alive(self) -> list[dict[str, object]]:
        """Every instance, also those whose program does not run yet."""
        return [instance.describe() for instance in self._by_id.values()]

    def tell_unseen(self, client: Client) -> None:
        """Tell a new follower what ended while nobody looked."""
        for event in self._unseen.values():
            client.send(event)

    def seen(self, instance_ids: Iterable[str]) -> None:
        """Forget these ends: somebody has taken note."""
        for instance_id in instance_ids:
            self._unseen.pop(instance_id, None)

    def ready(self, instance: Instance, descriptor: int) -> None:
        """Something can be read from one of the instance's descriptors."""
        if descriptor == instance.status:
            open_still = self._hear(instance)
        else:
            chunk = instance.read(descriptor)
            self._pass_on(instance, descriptor, chunk)
            open_still = chunk != b""
        if not open_still:
            self._selector.unregister(descriptor)
            if descriptor == instance.status and not instance.pid:
                self._anew.append(instance)

    def reap(self) -> None:
        """Take note of every process that has ended."""
        while self._anew:
            self._start_anew(self._anew.pop())
        for pid in self._by_pid.keys() & self._strays.keys():
            self._finish(self._by_pid.pop(pid), self._strays.pop(pid))
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._helpers.discard(pid)
            instance = self._by_pid.pop(pid, None)
            if instance is not None:
                self._finish(instance, status)
                continue
            self._strays[pid] = status
            if len(self._strays) > _STRAYS:
                del self._strays[next(iter(self._strays))]

    def pass_deadlines(self) -> float | None:
        """Act on deadlines that are over, look what instances use; seconds to the next of either, None without any."""
        now = time.monotonic()
        look = self._patrol.tend(now, self._watched())
        for instance in list(self._by_id.values()):
            if instance.deadline is None or instance.deadline > now:
                continue
            if instance.pid:
                instance.late()
            else:
                self._start_anew(instance)
        pending = [instance.deadline for instance in self._by_id.values() if instance.deadline is not None]
        pending += [] if look is None else [look]
        tended = None if self._nursery is None else self._nursery.tend(now)
        if tended is not None:
            pending.append(tended)
        return max(0.0, min(pending) - now) if pending else None

    def _watched(self) -> dict[int, Bounds]:
        """What has to be looked at, because the kernel does not see to it."""
        if self._confinement.groups is not None and self._confinement.scratch is None:
            return {}
        return {
            instance.pid: instance.bounds
            for instance in self._by_pid.values()
            if instance.running and instance.exceeded is None
        }

    def _uses_too_much(self, pid: int, exceeded: str) -> None:
        # The number may be another's by now; that one is looked at again in a moment.
        instance = self._by_pid.get(pid)
        if instance is not None and instance.running and instance.exceeded is None:
            instance.end_for(exceeded)

    def _hear(self, instance: Instance) -> bool:
        unborn = not instance.pid
        open_still = instance.hear()
        if unborn and instance.pid:
            self._note_pid(instance)
        if instance.running and instance.instance_id in self._starts:
            _answer(self._starts.pop(instance.instance_id), instance.describe())
        return open_still

    def _note_pid(self, instance: Instance) -> None:
        self._by_pid[instance.pid] = instance
        try:
            # While it can be waited for, a stray of this number was an earlier process.
            os.waitid(os.P_PID, instance.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        self._strays.pop(instance.pid, None)
        if instance.asked_to_end:
            instance.kill()

    def _start_anew(self, instance: Instance) -> None:
        """Its blank came to nothing (the zygote ended, or takes too long): execute its program instead."""
        spec = instance.spec
        self._let_go(instance)
        if spec is None or instance.asked_to_end:
            instance.never_born()
            self._tell_end(instance)
            return
        try:
            folder = self._run_folder.folder_of(spec.instance_id)
            self._keep(launch(spec, self._confinement, self._roots, folder, self._null))
        except RequestError as error:
            instance.failure = error
            self._tell_end(instance)

    def _pass_on(self, instance: Instance, pipe: int, chunk: bytes | None) -> None:
        if not chunk:
            return
        stream = instance.pipes[pipe]
        text = instance.output.take(stream, chunk, time.monotonic())
        for client in self.clients:
            if client.following:
                client.send_output(instance.instance_id, stream, text, len(chunk))

    def _finish(self, instance: Instance, status: int) -> None:
        instance.reaped(status)
        self._hear(instance)
        for pipe in instance.pipes:
            while chunk := instance.read(pipe):
                self._pass_on(instance, pipe, chunk)
        self._let_go(instance)
        self._tell_end(instance)

    def _let_go(self, instance: Instance) -> None:
        for descriptor in (instance.status, *instance.pipes):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        del self._by_id[instance.instance_id]
        if not self._confinement.namespaces:
            self._end_orphans()
        if instance.bounds.folder is not None and self._confinement.scratch is not None:
            self._helpers.update(self._confinement.scratch.remove(instance.bounds.folder))
        instance.release(self._confinement.groups)

    def _end_orphans(self) -> None:
        """Without a process namespace a program may have killed its own first process; what that left came to this one."""
        for pid in reaper.children():
            if pid not in self._by_pid and pid not in self._helpers:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _tell_end(self, instance: Instance) -> None:
        waiting = self._starts.pop(instance.instance_id, None)
        if waiting is not None and instance.failure is not None:
            _answer_error(waiting, instance.failure)
        else:
            self._announce(instance)
        for stopped in self._stops.pop(instance.instance_id, ()):
            _answer(stopped, {})

    def _announce(self, instance: Instance) -> None:
        event: dict[str, object] = {
            "event": "ended",
            "instance_id": instance.instance_id,
            "exit_code": instance.exit_code,
            "signal": instance.signal,
            "reason": instance.exceeded or ("stopped" if instance.asked_to_end else "ended"),
            "tail": instance.output.tail,
        }
        for client in self.clients:
            client.forget_output(instance.instance_id)
        self._tell_followers(event)
        event["tail"] = instance.output.tail[-_UNSEEN_TAIL:]
        self._unseen[instance.instance_id] = event
        while len(self._unseen) > UNSEEN_ENDS:
            del self._unseen[next(iter(self._unseen))]

    def _tell_followers(self, event: dict[str, object]) -> None:
        for client in self.clients:
            if client.following:
                client.send(event)


def _answer(waiting: Waiting, result: dict[str, object]) -> None:
    client, number = waiting
    client.send({"id": number, "result": result})


def _answer_error(waiting: Waiting, error: RequestError) -> None:
    client, number = waiting
    client.send({"id": number, "error": error.payload()})
