"""What runs and what should run. Pure: `now` is passed in."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


class Kind(enum.Enum):
    """Function or service; one thing here, told apart for nobody but people."""

    FUNCTION = "function"
    SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on a function's instances. `concurrency`: calls at once in one instance, from 1. `most` 0: switched off."""

    least: int
    most: int
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """What the registry's watch tells of a function.

    generation       counts every change of configuration, code or active version.
    version          the version that should serve; 0 while none is built.
    deploying        the outcome of the newest generation waits for a deployment.
    failed           the newest generation can't be served.
    deleted          it is being deleted.
    least, most      bounds on its instances.
    timeout          how long a call may take; None: no limit.
    revision         the registry's revision in which this was written.
    """

    uid: str
    generation: int
    version: int
    deploying: bool
    failed: bool
    deleted: bool
    least: int
    most: int
    timeout: timedelta | None
    revision: int

    @property
    def needs_work(self) -> bool:
        """Whether it must be looked after although nobody calls it and nothing of it runs."""
        return self.deleted or self.deploying or (self.least > 0 and self.most > 0 and self.version > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """All that shapes a function's instances.

    namespace_number  a number that no other namespace has or had.
    generation        the newest generation, version the one that should serve (0: none is built).
    template          changes exactly when running instances must be replaced.
    deploying         whether the outcome of the generation waits for a deployment.
    revision          the registry's revision in which this was read.
    traceparent       W3C traceparent of the request that made the generation; "": it had none.
    serving           what served last, when its template is another one; None when it is not, or not known.
    """

    function_uid: str
    namespace: str
    namespace_number: int
    name: str
    kind: Kind
    generation: int
    version: int
    runtime: str
    entrypoint: str
    layers: tuple[str, ...]
    memory_mb: int
    environment: Mapping[str, str] = field(repr=False)
    limits: Limits
    template: str
    deploying: bool
    revision: int
    traceparent: str = ""
    serving: Workload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingInstance:
    """An instance that takes calls, as callers see it. `address`: `unix:/path` or `host:port`."""

    instance_id: str
    address: str
    max_concurrency: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSet:
    """All of a function's instances that take calls. `failure`: why none can be had, for people; empty when one can.

    `starting`: those that will in a moment. Who connects to one waits until it has loaded its code.
    """

    function_uid: str
    generation: int = 0
    instances: tuple[ServingInstance, ...] = ()
    failure: str = ""
    starting: tuple[ServingInstance, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it says no more than a set that nobody was ever told of."""
        return not self.instances and not self.starting and not self.failure


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceBatch:
    """Changed sets, whole. `reset`: sets that are not named here are to be forgotten."""

    revision: int
    reset: bool
    sets: tuple[InstanceSet, ...]


class Phase(enum.Enum):
    """How a deployment goes."""

    DEPLOYING = "deploying"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What there is to tell the registry of a generation. `message` is for people."""

    generation: int
    version: int
    phase: Phase
    message: str = ""
