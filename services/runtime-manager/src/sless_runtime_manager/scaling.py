"""How many instances a function should have: a pure function of what callers reported.

Shaped as Knative's autoscaler (knative.dev/docs/serving/autoscaling/autoscaling-concepts): samples of concurrency go in, windows
look at them, bounds come last. There is one window so far: its peak counts, so that scaling up is immediate and scaling down
waits until the whole window agrees. A stable and a panic window are two calls of `_peak` and a choice between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sless_runtime_manager.domain import Limits

UNKNOWN_SOURCE: Final = ""
_BUCKET: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Policy:
    """idle: how long a function without calls keeps instances beyond its least. window: whose peak decides how many."""

    idle: timedelta
    window: timedelta = timedelta(seconds=60)

    @property
    def memory(self) -> timedelta:
        """How long a sample can matter."""
        return max(self.idle, self.window)


@dataclass(frozen=True, slots=True)
class Sample:
    """The most calls, from 1, that `source` saw run or wait at once; `at` is when it last said so.

    source "" is whoever can't be told from the others: its calls may be theirs.
    """

    at: datetime
    source: str
    concurrency: int


def desired(limits: Limits, samples: Sequence[Sample], now: datetime, policy: Policy) -> int:
    """Instances that should be there now, within `limits`.

    The least while nobody has called for `policy.idle`; otherwise one at least, and as many as the peak of the
    window needs.
    """
    if limits.most == 0:
        return 0
    if not any(now - sample.at < policy.idle for sample in samples):
        return min(limits.least, limits.most)
    calls = _peak(samples, now - policy.window)
    wanted = -(-calls // limits.concurrency)
    return max(min(max(wanted, 1), limits.most), min(limits.least, limits.most))


def next_change(limits: Limits, samples: Sequence[Sample], now: datetime, policy: Policy) -> datetime | None:
    """When `desired` gives another number although nothing is reported until then; None: never."""
    current = desired(limits, samples, now, policy)
    moments = {sample.at + period for sample in samples for period in (policy.window, policy.idle)}
    for moment in sorted(moments):
        if moment > now and desired(limits, samples, moment, policy) != current:
            return moment
    return None


def _peak(samples: Iterable[Sample], since: datetime) -> int:
    """The most calls at once since then: sources see different calls, so their peaks add up, save the unknown one's."""
    peaks: dict[str, int] = {}
    for sample in samples:
        if sample.at > since:
            peaks[sample.source] = max(peaks.get(sample.source, 0), sample.concurrency)
    return max(peaks.pop(UNKNOWN_SOURCE, 0), sum(peaks.values()))


class Demand:
    """The samples of one function that still matter: at most one for each source and ten seconds."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._samples: list[Sample] = []

    @property
    def samples(self) -> Sequence[Sample]:
        """From the oldest on."""
        return self._samples

    def note(self, source: str, concurrency: int, now: datetime) -> None:
        """`source` saw that many calls at once; 0 says nothing."""
        if concurrency < 1:
            return
        self._forget(now)
        last = next((sample for sample in reversed(self._samples) if sample.source == source), None)
        if last is not None and _bucket(last.at) == _bucket(now):
            self._samples.remove(last)
            concurrency = max(concurrency, last.concurrency)
        self._samples.append(Sample(now, source, concurrency))

    def desired(self, limits: Limits, now: datetime) -> int:
        """See the function of this name."""
        return desired(limits, self._samples, now, self._policy)

    def next_change(self, limits: Limits, now: datetime) -> datetime | None:
        """See the function of this name."""
        return next_change(limits, self._samples, now, self._policy)

    def _forget(self, now: datetime) -> None:
        newest = {sample.source: sample for sample in self._samples}
        self._samples = [
            sample
            for sample in self._samples
            if now - sample.at < self._policy.window
            or (sample is newest[sample.source] and now - sample.at < self._policy.memory)
        ]


def _bucket(at: datetime) -> int:
    return int(at.timestamp() // _BUCKET.total_seconds())
