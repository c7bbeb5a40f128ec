"""Growing pauses between tries, so that what is down is not also flooded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True)
class Backoff:
    """initial, initial x factor, … up to maximum; each shortened at random by up to the share `jitter` (0 to 1).

    The random part only shortens, so `maximum` is a promise.
    """

    initial: timedelta = timedelta(milliseconds=100)
    maximum: timedelta = timedelta(seconds=5)
    factor: float = 2.0
    jitter: float = 0.2

    def delays(self, uniform: Callable[[], float] = random.random) -> Iterator[timedelta]:
        """Endless: take a new iterator after a success. `uniform` gives numbers from 0 to 1."""
        pause = self.initial
        while True:
            yield pause * (1 - self.jitter * uniform())
            pause = min(pause * self.factor, self.maximum)
