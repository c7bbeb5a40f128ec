"""One mutation: its transaction, the answer that an earlier try of it got, and writing with the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sless_platform import tracing
from sless_platform.faults import fault_point

from sless_registry.application.means import Means
from sless_registry.domain import validation
from sless_registry.domain.record import Changes
from sless_registry.errors import RequestIdReused
from sless_registry.ports import Answer, RequestKey, StoredAnswer, Transaction


@dataclass(frozen=True, slots=True)
class Request:
    """What makes a mutation repeatable: its request_id ("": it is not), and its content, the same bytes for the same request."""

    request_id: str = ""
    content: bytes = b""


ONCE = Request()
"""For what is idempotent by itself."""


class Mutation:
    """A mutation under way. `earlier`: what an earlier try of the same request was answered with; None for a first try."""

    def __init__(
        self, transaction: Transaction, now: datetime, traceparent: str, unanswered: StoredAnswer | None
    ) -> None:
        self.transaction = transaction
        self.now = now
        self.traceparent = traceparent
        self.earlier: Answer | None = None
        self._unanswered = unanswered

    async def look_back(self, answers_kept: timedelta) -> None:
        """Find the earlier answer. Raises RequestIdReused when the request_id was another request's."""
        if self._unanswered is None:
            return
        stored = await self.transaction.answer(self._unanswered.key)
        if stored is None or stored.created_at <= self.now - answers_kept:
            return
        if stored.fingerprint != self._unanswered.fingerprint:
            key = stored.key
            raise RequestIdReused(
                f"request_id {key.request_id} was used for another {key.method}: take a new one for a new request"
            )
        self.earlier = _at(stored.answer, stored.revision)

    async def write(self, changes: Changes, answer: Answer) -> Answer:
        """Write changes and answer; gives the answer with the revision that was written. Nothing may follow it."""
        answer = _unwritten(answer, changes)
        stored = None if self._unanswered is None else replace(self._unanswered, answer=answer)
        if not changes and stored is None:
            return answer
        return _at(answer, await self.transaction.write(changes, stored))


@asynccontextmanager
async def mutation(means: Means, *, subject: str, method: str, request: Request) -> AsyncIterator[Mutation]:
    """A transaction for one mutation, committed when the block ends. An earlier answer is kept for `Policy.answers_kept`."""
    now = means.now()
    unanswered = _unanswered(means, subject, method, request, now)
    async with means.store.transaction() as transaction:
        under_way = Mutation(transaction, now, tracing.traceparent(), unanswered)
        await under_way.look_back(means.policy.answers_kept)
        yield under_way
    fault_point("registry.after_commit_before_answer")


def _unanswered(means: Means, subject: str, method: str, request: Request, now: datetime) -> StoredAnswer | None:
    if not request.request_id:
        return None
    key = RequestKey(subject, method, validation.request_id(request.request_id))
    return StoredAnswer(key, means.sealer.fingerprint(request.content), Answer(), 0, now)


def _unwritten(answer: Answer, changes: Changes) -> Answer:
    """The answer with revision 0 for whatever of it is about to be written."""
    function, version = answer.function, answer.version
    if function is not None and any(changed.uid == function.uid for changed in changes.functions):
        function = replace(function, revision=0)
    if version is not None and any(changed.uid == version.uid for changed in changes.versions):
        version = replace(version, revision=0)
    return replace(answer, function=function, version=version)


def _at(answer: Answer, revision: int) -> Answer:
    """The answer with this revision for whatever of it was written."""
    function, version = answer.function, answer.version
    if function is not None and not function.revision:
        function = replace(function, revision=revision)
    if version is not None and not version.revision:
        version = replace(version, revision=revision)
    return replace(answer, function=function, version=version)
