"""What is known of one function, and what follows from it. No I/O, no clock of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sless_platform.errors import PlatformError

from sless_runtime_manager.application.fate import End, Fate
from sless_runtime_manager.application.instance import Instance
from sless_runtime_manager.application.tools import Times
from sless_runtime_manager.domain import Function, InstanceSet, Outcome, Phase, ServingInstance, Workload
from sless_runtime_manager.errors import Disabled, NothingToRun, StartFailed, WorkloadNotFound
from sless_runtime_manager.planning import Situation, Stage
from sless_runtime_manager.restarts import Restarts
from sless_runtime_manager.scaling import UNKNOWN_SOURCE, Demand, Policy


class FunctionState:
    """Facts come in by the `note_…` methods; everything else only looks.

    serving     template whose instances take calls, or last did; "" before the first.
    gone        the function is deleted, or there is no such function (any more).
    told        the last outcome that the registry was told.
    """

    def __init__(self, function_uid: str, policy: Policy, times: Times) -> None:
        self.function_uid = function_uid
        self.function: Function | None = None
        self.workload: Workload | None = None
        self.serving = ""
        self.gone = False
        self.told: Outcome | None = None
        self._proven: Workload | None = None
        self._failed = False
        self._restarts: dict[str, Restarts] = {}
        self._demand = Demand(policy)
        self._times = times
        self._longest_timeout: timedelta | None = timedelta(0)

    # Facts.

    def note_function(self, function: Function) -> None:
        """The registry's watch tells of the function."""
        if self.function is not None and function.revision < self.function.revision:
            return
        self.function = function
        self.gone = self.gone or function.deleted
        if self._longest_timeout is not None:
            self._longest_timeout = None if function.timeout is None else max(self._longest_timeout, function.timeout)

    def note_workload(self, workload: Workload) -> None:
        """The registry tells what should run."""
        known = self.workload
        if known is not None and workload.revision < known.revision:
            return
        if known is not None and known.template != workload.template and self.serving == known.template:
            self._proven = known
        if known is not None and known.generation != workload.generation:
            self._failed = False  # Somebody has asked anew, be it for the same.
        self.workload = workload
        self._remember_what_served(workload)
        self._forget_templates()

    def note_demand(self, source: str, concurrency: int, now: datetime) -> None:
        """Somebody calls the function."""
        self._demand.note(source, concurrency, now)

    def note_retry(self, now: datetime) -> None:
        """Somebody calls although the newest generation failed: where nothing else can serve, it is worth another try."""
        if self._failed and self._proven is None and not self._startable_restarts.pause(now):
            self._failed = False

    def note_start(self, template: str) -> None:
        """An instance is being started."""
        self._restarts_of(template).retried()

    def note_ready(self, instance: Instance, now: datetime) -> None:
        """An instance answered its probe."""
        self._restarts_of(instance.template).became_ready()
        # Idle time counts from here: who deployed the function is about to call it.
        self._demand.note(UNKNOWN_SOURCE, 1, now)

    def note_end(self, instance: Instance, end: End, others: Iterable[Instance], now: datetime) -> None:
        """An instance is no more; `others` are."""
        restarts = self._restarts_of(instance.template)
        if end.fate is Fate.CRASHED and instance.ready_at is not None:
            restarts.crashed(instance.started_at, instance.ready_at, now)
        elif end.fate is Fate.NO_ROOM:
            restarts.found_no_room(end.message, now)
        elif end.fate is Fate.POSTPONED:
            restarts.postponed(end.message, now)
        elif end.fate is Fate.NOT_LOADED:
            restarts.start_failed(end.message, instance.started_at, now)
            self._failed = self._failed or self._fails_its_generation(instance.template, others)

    def note_serving(self, template: str) -> None:
        """From now on instances of this template take calls."""
        if self.workload is not None and template == self.workload.template:
            self._proven = None
        self.serving = template
        self._forget_templates()

    def note_adopted(self, instances: Sequence[Instance], now: datetime) -> None:
        """These run and are ready, started by an earlier process of this service; the best of them go on serving."""
        self.serving = self._best_template(instances) or self.serving
        if self._proven is not None and self._proven.template != self.serving:
            self._proven = None
        serving = [instance for instance in instances if instance.template == self.serving]
        calls = sum(instance.serving.max_concurrency for instance in serving)
        self._demand.note(UNKNOWN_SOURCE, calls, now)

    # What follows.

    @property
    def is_stale(self) -> bool:
        """Whether the workload has to be asked for."""
        function, workload = self.function, self.workload
        if self.gone or (function is not None and function.version == 0):
            return False
        if workload is None:
            return True
        if function is None or function.revision <= workload.revision:
            return False
        same = (function.generation, function.version) == (workload.generation, workload.version)
        return not same or (function.deploying and not workload.deploying)

    @property
    def patience(self) -> timedelta:
        """How long calls that run may take when their instance has to go."""
        if self.function is None or self._longest_timeout is None:
            return self._times.deleted_drain if self.gone else self._times.unlimited_drain
        return self._longest_timeout + self._times.drain_margin

    @property
    def settled(self) -> tuple[Function, Workload] | None:
        """The function and what should run of it, where its newest generation has served."""
        function, workload = self.function, self.workload
        if function is None or workload is None or self.gone or function.deploying or function.failed:
            return None
        if (function.generation, function.version) != (workload.generation, workload.version):
            return None
        return function, replace(workload, deploying=False)

    def wanted(self, now: datetime) -> int:
        """Instances that scaling asks for."""
        return 0 if self.workload is None else self._demand.desired(self.workload.limits, now)

    def situation(self, instances: Iterable[Instance], now: datetime) -> Situation:
        """For planning."""
        return Situation(
            workload=self.workload,
            proven=self._proven,
            serving=self.serving,
            gone=self.gone,
            failed=self._failed,
            troubled=self._startable_restarts.troubled,
            paused=self._startable_restarts.pause(now) is not None,
            wanted=self.wanted(now),
            proving=self._proving,
            replicas=tuple(instance.replica for instance in instances),
        )

    def instance_set(self, ready: Sequence[Instance], starting: Sequence[Instance]) -> InstanceSet:
        """What callers are told. `ready`: the serving template's; `starting`: all that may become ready soon."""
        generation = max((instance.generation for instance in ready), default=0)
        if self.workload is not None and self.serving == self.workload.template:
            generation = self.workload.generation
        return InstanceSet(
            function_uid=self.function_uid,
            generation=generation,
            instances=_serving(ready),
            starting=_serving(one for one in starting if one.can_be_reached and self._may_serve(one.template)),
            failure="" if ready or starting or self.gone else self._startable_restarts.failure,
        )

    def refusal(self, instances: Iterable[Instance], now: datetime) -> PlatformError | None:
        """Why no call needs to wait for an instance; None when one may come."""
        if self.gone:
            return WorkloadNotFound(f"there is no function with the uid {self.function_uid}")
        if self.workload is None or self.workload.version == 0:
            built = self.function is not None and self.function.version > 0
            return None if built else NothingToRun("no version of the function has been built: upload its code")
        if self.workload.limits.most == 0:
            return Disabled(f"{self.workload.name} is switched off (replicas is 0)")
        restarts = self._startable_restarts
        alive = any(instance.stage is not Stage.LEAVING for instance in instances)
        if restarts.failure and not alive and (pause := restarts.pause(now)):
            return StartFailed(restarts.failure, retry_after=pause)
        return None

    def due_outcome(self, ready: bool) -> Outcome | None:
        """What the registry should know and wasn't told; `ready`: instances of the serving template take calls."""
        outcome = self._outcome(ready)
        return None if outcome == self.told else outcome

    def next_deadline(self, now: datetime) -> datetime | None:
        """When something follows although nothing happens until then."""
        moments = [restarts.start_after for restarts in self._restarts.values()]
        if self.workload is not None:
            moments.append(self._demand.next_change(self.workload.limits, now))
        return min((moment for moment in moments if moment is not None and moment > now), default=None)

    def is_idle(self, now: datetime) -> bool:
        """Whether, with no instance there, nothing would be lost by forgetting the function."""
        workload = self.workload
        if workload is None or workload.version == 0:
            return not self.is_stale
        if self._failed:
            return self._proven is None and not self._startable_restarts.pause(now)
        return not self._proving and self.wanted(now) == 0

    # The parts.

    @property
    def _proving(self) -> bool:
        """Whether somebody waits to hear that the newest generation serves."""
        if self.workload is None or not self.workload.deploying or self._failed or self.workload.limits.most == 0:
            return False
        told = self.told
        return told is None or told.generation != self.workload.generation or told.phase is not Phase.READY

    @property
    def _startable_restarts(self) -> Restarts:
        """Of the template that would be started."""
        if self._failed and self._proven is not None:
            return self._restarts_of(self._proven.template)
        return self._restarts_of("" if self.workload is None else self.workload.template)

    def _restarts_of(self, template: str) -> Restarts:
        return self._restarts.setdefault(template, Restarts())

    def _forget_templates(self) -> None:
        newest = "" if self.workload is None else self.workload.template
        self._restarts = {key: value for key, value in self._restarts.items() if key in (newest, self.serving)}

    def _remember_what_served(self, workload: Workload) -> None:
        """A process that has just begun learns what earlier ones had running: that goes on when the newest can't be started."""
        served = workload.serving
        if served is not None and self._proven is None and self.serving in ("", served.template):
            self._proven, self.serving = served, served.template

    def _fails_its_generation(self, template: str, others: Iterable[Instance]) -> bool:
        """Whether a start that failed speaks for the whole generation, not for a bad moment of one that has served."""
        if self.workload is None or template != self.workload.template or template == self.serving:
            return False
        if any(other.template == template and other.stage is Stage.READY for other in others):
            return False
        return self.workload.deploying or (self.function is not None and self.function.failed)

    def _best_template(self, ready: Sequence[Instance]) -> str:
        if self.workload is not None and any(one.template == self.workload.template for one in ready):
            return self.workload.template
        newest = max(ready, key=lambda one: one.generation, default=None)
        return "" if newest is None else newest.template

    def _outcome(self, ready: bool) -> Outcome | None:
        workload, told = self.workload, self.told
        if workload is None or workload.version == 0 or self.gone:
            return None
        told_phase = told.phase if told is not None and told.generation == workload.generation else None
        if not workload.deploying and told_phase is None:
            return None
        reached = self._reached(workload, ready)
        # What hinders the platform is news only as long as nothing else has been told.
        return told if reached is None or (reached.phase is Phase.DEPLOYING and told_phase is not None) else reached

    def _may_serve(self, template: str) -> bool:
        """Whether instances of the template may take calls as soon as they can: none of another does, or is about to."""
        workload = self.workload
        if workload is None or self.serving:
            return template == self.serving
        return not workload.deploying and not self._failed and template == workload.template

    def _reached(self, workload: Workload, ready: bool) -> Outcome | None:
        restarts = self._restarts_of(workload.template)
        if self._failed:
            return self._of(workload, Phase.FAILED, restarts.failure)
        if workload.limits.most == 0:
            return self._of(workload, Phase.READY, "switched off: replicas is 0")
        if self.serving == workload.template and ready:
            return self._of(workload, Phase.READY, "")
        return self._of(workload, Phase.DEPLOYING, restarts.obstacle) if restarts.obstacle else None

    @staticmethod
    def _of(workload: Workload, phase: Phase, message: str) -> Outcome:
        return Outcome(generation=workload.generation, version=workload.version, phase=phase, message=message)


def _serving(instances: Iterable[Instance]) -> tuple[ServingInstance, ...]:
    return tuple(sorted((instance.serving for instance in instances), key=lambda one: one.instance_id))
