"""What the invoker needs of the outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sless_invoker.domain import LogLine, Target


@dataclass(frozen=True, slots=True)
class Lookup:
    """What the registry knew of a name. ``target`` None: nothing. ``read_revision``: how old the answer is; 0 when
    that is not known."""

    target: Target | None
    read_revision: int


class Directory(Protocol):
    """The registry, asked."""

    async def find(self, namespace: str, name: str) -> Lookup:
        """The live function of that name. Raises Unavailable when the registry is away."""
        ...


class Supply(Protocol):
    """The runtime-manager, asked for instances."""

    async def ensure(self, function_uid: str, concurrency: int) -> None:
        """Says that this many calls of the function run or wait. Instances come through the watch.

        Raises NotFound when there is no such function, FailedPrecondition with the reason when no instance can be
        had, Unavailable when the runtime-manager is away.
        """
        ...


class CallLog(Protocol):
    """Where the lines that calls print are kept."""

    def write(self, function_uid: str, request_id: str, lines: Sequence[LogLine]) -> None:
        """Appends lines. Never raises: a log that can't be written is reported once, and the call goes on."""
        ...
