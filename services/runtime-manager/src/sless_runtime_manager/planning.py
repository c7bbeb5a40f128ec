"""What to do next for one function: a pure function of what runs and what should run."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sless_runtime_manager.domain import Workload


class Stage(enum.Enum):
    """Where an instance is in its life. One that has ended has no stage: it is not there any more."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """An instance as far as planning goes. `template`: what shaped it; `started_at`: when it was asked for."""

    instance_id: str
    template: str
    stage: Stage
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A function at one moment.

    workload    what should run; None while it isn't known.
    proven      the workload of the template that serves when it is not the newest one's; None when it isn't known.
    serving     the template whose instances take calls, or last did; "" before the first.
    gone        the function is deleted.
    failed      instances of `workload` can't be started and never served: what served before goes on.
    troubled    an instance of `workload` failed to start since one was last ready.
    paused      starts of what would be started have to wait (back-off).
    wanted      what scaling asks for, within the limits.
    proving     somebody waits to hear that the newest generation serves.
    replicas    all instances that are there.
    """

    workload: Workload | None
    proven: Workload | None
    serving: str
    gone: bool
    failed: bool
    troubled: bool
    paused: bool
    wanted: int
    proving: bool
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do: start an instance of each of `starts`, publish those of `serving` that are ready, let `leave` go."""

    serving: str
    starts: tuple[Workload, ...] = ()
    leave: tuple[str, ...] = ()


def plan(situation: Situation) -> Plan:
    """The next step. Applying it and planning again gives a plan with nothing in it, until something happens.

    Two things never happen: instances of two templates taking calls, and instances that take calls going away
    before their successors are ready.
    """
    live = [replica for replica in situation.replicas if replica.stage is not Stage.LEAVING]
    if situation.gone:
        return Plan(serving=situation.serving, leave=_ids(live))
    if situation.workload is None or situation.workload.version == 0:
        return Plan(serving=situation.serving)
    if situation.workload.limits.most == 0:
        return Plan(serving=situation.serving, leave=_ids(live))
    if situation.failed:
        return _go_on_with_the_old(situation, live)
    return _move_to_the_newest(situation, situation.workload, live)


def _go_on_with_the_old(situation: Situation, live: Sequence[Replica]) -> Plan:
    """The newest generation failed: scale what serves, as far as it is known what that was made of."""
    serving = _of(live, situation.serving)
    others = [replica for replica in live if replica.template != situation.serving]
    leave = (*_ids(others), *_ids(_surplus(serving, situation.wanted)))
    missing = 0 if situation.paused else max(situation.wanted - len(serving), 0)
    starts = () if situation.proven is None else (situation.proven,) * missing
    return Plan(serving=situation.serving, starts=starts, leave=leave)


def _move_to_the_newest(situation: Situation, workload: Workload, live: Sequence[Replica]) -> Plan:
    need = max(situation.wanted, 1) if situation.proving else situation.wanted
    newest = _of(live, workload.template)
    serving = situation.serving
    if serving != workload.template and _can_switch(situation, newest, _of(live, serving), need):
        serving = workload.template
    keep = {workload.template, serving}
    leave = [replica for replica in live if replica.template not in keep or need == 0]
    if need > 0:
        leave += _surplus(newest, need)
    missing = 0 if situation.paused else max(need - len(newest), 0)
    return Plan(serving=serving, starts=(workload,) * missing, leave=_ids(leave))


def _can_switch(situation: Situation, newest: Sequence[Replica], old: Sequence[Replica], need: int) -> bool:
    """Enough of the newest are ready to take over what the old ones carry."""
    ready = sum(replica.stage is Stage.READY for replica in newest)
    carrying = sum(replica.stage is Stage.READY for replica in old)
    return ready >= (1 if situation.troubled else max(1, min(need, carrying)))


def _surplus(replicas: Sequence[Replica], keep: int) -> list[Replica]:
    """Those beyond `keep`: first what isn't ready, then the youngest."""
    order = sorted(replicas, key=lambda replica: (replica.stage is not Stage.READY, replica.started_at))
    return order[keep:]


def _of(replicas: Sequence[Replica], template: str) -> list[Replica]:
    return [replica for replica in replicas if replica.template == template]


def _ids(replicas: Sequence[Replica]) -> tuple[str, ...]:
    return tuple(replica.instance_id for replica in replicas)
