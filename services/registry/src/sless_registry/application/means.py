"""What every operation works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sless_platform.faults import fault_point

from sless_registry.application.acknowledgements import Acknowledgements
from sless_registry.application.feed import Feed
from sless_registry.domain.lifecycle import NewVersion
from sless_registry.errors import FencePending
from sless_registry.ports import Sealer, Store

FENCING_SERVICE = "invoker"
"""The service that routes calls: what it has applied holds for every caller."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Bounds that operators may change.

    functions_per_namespace  live functions and services of a namespace.
    versions_kept            versions kept of a function.
    events_kept              revisions for which events are kept; a watcher further behind begins anew.
    answers_kept             how long a mutation's answer is given again to its request_id.
    """

    functions_per_namespace: int
    versions_kept: int
    events_kept: int = 100_000
    answers_kept: timedelta = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Means:
    """The ports and the shared parts, as the composition root chose them. `now` gives UTC, `new_uid` 32 hexadecimal digits."""

    store: Store
    sealer: Sealer
    feed: Feed
    policy: Policy
    now: Callable[[], datetime]
    new_uid: Callable[[], str]
    acknowledgements: Acknowledgements = field(default_factory=lambda: Acknowledgements(FENCING_SERVICE))

    def new_version(self, now: datetime) -> NewVersion:
        """What a version that may be made needs."""
        return NewVersion(uid=self.new_uid(), kept=self.policy.versions_kept, now=now)

    async def fence(self, revision: int, within: timedelta, *, done: str) -> None:
        """Wait until a stored revision holds everywhere. Raises FencePending, saying what is `done`, when it does not in time."""
        fault_point("registry.before_fence")
        if not await self.acknowledgements.reached(revision, within):
            raise FencePending(done)
