"""How an instance's life ended, as far as it matters for what follows."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sless_runtime_manager.ports import InstanceEnded


class Fate(enum.Enum):
    """Why an instance is no more.

    LEFT        it was asked to go, or asked to go itself.
    CRASHED     it was ready and ended, or stopped answering.
    NOT_LOADED  it was never ready, and the function is at fault.
    NO_ROOM     the machine has no memory for it now.
    POSTPONED   it could not be started, or was taken away, and the platform is at fault.
    """

    LEFT = "left"
    CRASHED = "crashed"
    NOT_LOADED = "not loaded"
    NO_ROOM = "no room"
    POSTPONED = "postponed"


@dataclass(frozen=True, slots=True)
class End:
    """How an instance's life ended. `message`: for people."""

    fate: Fate
    message: str = ""


def was_taken_away(event: InstanceEnded) -> bool:
    """Whether nobody saw it end: it went with the machine's launcher, by no fault of its own."""
    return event.exit_code is None and event.signal is None
