"""When an instance that ended may be replaced: at once the first time, then after pauses. Pure.

The pauses grow to 30 s while instances end before they are ready, and to a second when they had been ready.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_FIRST_PAUSE: Final = timedelta(seconds=1)
_LONGEST_PAUSE: Final = timedelta(seconds=30)
_LONGEST_PAUSE_AFTER_SERVING: Final = timedelta(seconds=1)
_FIRST_POSTPONEMENT: Final = timedelta(milliseconds=250)
_LONGEST_POSTPONEMENT: Final = timedelta(seconds=4)
_HEALTHY: Final = timedelta(seconds=60)


@dataclass(slots=True)
class Restarts:
    """What is remembered of the troubles of one template's instances.

    failure      why the last start failed; "" when an instance has become ready since, or none ever failed.
    obstacle     why the platform could not start one; "" alike.
    start_after  no start before this.
    """

    failure: str = ""
    obstacle: str = ""
    start_after: datetime | None = None
    _troubles: int = 0
    _postponements: int = 0
    _last_at: datetime | None = None

    def pause(self, now: datetime) -> timedelta | None:
        """How long a start has to wait; None when it hasn't to."""
        return self.start_after - now if self.start_after is not None and now < self.start_after else None

    @property
    def troubled(self) -> bool:
        """Whether a start failed since an instance was last ready."""
        return bool(self.failure)

    def crashed(self, started_at: datetime, ready_at: datetime, now: datetime) -> None:
        """An instance that was ready has ended by itself. One that was well for a minute makes up for what was before."""
        if now - ready_at >= _HEALTHY:
            self._troubles = 0
        self._count(started_at, now, at_least=1)
        # It did serve: whoever calls must not be able to keep it away from everybody by one bad call now and then.
        self.start_after = min(self.start_after or now, now + _LONGEST_PAUSE_AFTER_SERVING)

    def start_failed(self, message: str, started_at: datetime, now: datetime) -> None:
        """An instance ended, or couldn't load its code, before it was ready."""
        self.failure = message
        self._count(started_at, now, at_least=2)

    def postponed(self, message: str, now: datetime) -> None:
        """The platform could not start an instance now. The function is not at fault, so there is no failure to tell."""
        self.obstacle = message
        self._postponements += 1
        self.start_after = now + _doubled(_FIRST_POSTPONEMENT, self._postponements, _LONGEST_POSTPONEMENT)

    def found_no_room(self, message: str, now: datetime) -> None:
        """The machine has no memory for one more. It is tried again, but those who wait are told: it may take long."""
        self.postponed(message, now)
        self.failure = message

    def retried(self) -> None:
        """A new start is under way: what was wrong before isn't to be told any more."""
        self.failure = self.obstacle = ""

    def became_ready(self) -> None:
        """An instance answered its probe."""
        self.retried()
        self._postponements = 0

    def _count(self, started_at: datetime, now: datetime, at_least: int) -> None:
        # Instances that die together (one bad call to each) are one trouble, not many.
        if self._last_at is None or started_at >= self._last_at or self._troubles < at_least:
            self._troubles = max(self._troubles + 1, at_least)
        self._last_at = now
        self.start_after = now + _pause(self._troubles)


def _pause(troubles: int) -> timedelta:
    if troubles <= 1:
        return timedelta(0)
    return _doubled(_FIRST_PAUSE, troubles - 1, _LONGEST_PAUSE)


def _doubled(initial: timedelta, times: int, longest: timedelta) -> timedelta:
    doubled: timedelta = initial * 2.0 ** min(times - 1, 16)
    return min(doubled, longest)
