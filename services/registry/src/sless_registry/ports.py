"""What the registry needs from outside."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sless_registry.domain.record import Changes, Record
from sless_registry.domain.resources import Function, Kind, Namespace, Secret, Version


class ResourceType(enum.IntEnum):
    """What an event is about; the numbers are stored."""

    FUNCTION = 1
    VERSION = 2
    PURGE = 3
    VERSION_PURGE = 4


@dataclass(frozen=True, slots=True)
class Event:
    """That a resource changed in a revision. Several changes of one transaction have one revision."""

    revision: int
    type: ResourceType
    uid: str


@dataclass(frozen=True, slots=True)
class RequestKey:
    """Names a mutation that may be repeated: who asked, for what, under which request id."""

    subject: str
    method: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a mutation was answered with. `fenced`: it is answered only once the change holds everywhere."""

    function: Function | None = None
    version: Version | None = None
    created: bool = False
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as it is kept: with the fingerprint of its request and the revision that the request wrote (0: none).

    Resources of the answer that the request changed have revision 0, which stands for that revision.
    """

    key: RequestKey
    fingerprint: bytes
    answer: Answer
    revision: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class FunctionAt:
    """A function, if it is there, as of a revision."""

    function: Function | None
    revision: int


@dataclass(frozen=True, slots=True)
class WorkloadSource:
    """All that a workload is made of, read at one moment: with the version that should serve and the one that does.

    `namespace_number` 0: the namespace is gone.
    """

    function: Function
    version: Version | None
    serving: Version | None
    namespace_number: int
    revision: int


@dataclass(frozen=True, slots=True)
class Span:
    """Which events are there: those after `floor`, up to `head`, the newest revision."""

    floor: int
    head: int


@dataclass(frozen=True, slots=True)
class ChangePage:
    """The resources that changed after some revision and up to `revision`, each once, as it is now, in the order of its newest change.

    A resource that has changed again after `revision` is left to the page of that change. `purged`: functions that are gone for good,
    with their versions. `purged_versions`: versions that are kept no more.
    """

    span: Span
    revision: int
    functions: tuple[Function, ...] = ()
    versions: tuple[Version, ...] = ()
    purged: tuple[str, ...] = ()
    purged_versions: tuple[str, ...] = ()


class Transaction(Protocol):
    """One write transaction. Locks are taken in this order: request, namespace, functions, the revision."""

    async def answer(self, key: RequestKey) -> StoredAnswer | None:
        """The stored answer to this request. Until the transaction ends, others with the same key wait here."""
        ...

    async def ensure_namespace(self, name: str, now: datetime) -> Namespace:
        """The namespace, made when it is not there. Until the transaction ends, others that lock it wait here."""
        ...

    async def lock_namespace(self, name: str) -> Namespace | None:
        """The namespace if it is there, locked as by ensure_namespace."""
        ...

    async def remove_namespace(self, name: str) -> None:
        """Take the namespace away; its number is never given again."""
        ...

    async def count_functions(self, namespace: str) -> int:
        """How many live functions the namespace has."""
        ...

    async def lock(self, namespace: str, name: str) -> Record | None:
        """The live function of this name with its versions. Until the transaction ends, others that lock it wait here."""
        ...

    async def lock_uid(self, uid: str) -> Record | None:
        """The function of this identity, live or being deleted, locked as by lock()."""
        ...

    async def lock_version(self, version_uid: str) -> Record | None:
        """The function that has the version of this identity, locked as by lock()."""
        ...

    async def lock_all(self, namespace: str) -> Sequence[Record]:
        """All live functions of the namespace, locked as by lock()."""
        ...

    async def deletion(self, namespace: str, name: str, *, kind: Kind | None) -> int:
        """The newest revision in which a function that services still clean up after was deleted; 0: there is none.

        `name` empty: any function of the namespace.
        """
        ...

    async def finalized(self, function_uid: str, service: str) -> frozenset[str]:
        """Note that the service has cleaned up after the function; gives all services that have."""
        ...

    async def write(self, changes: Changes, stored: StoredAnswer | None = None) -> int:
        """Write the changes, their events and the answer under the next revision, which is given; the last thing to be done.

        An answer without changes takes no revision: 0 is given.
        """
        ...


class Store(Protocol):
    """Where all of it is kept. Every method raises Unavailable while the store cannot be reached."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction: committed when the block ends, rolled back when it raises."""
        ...

    async def revision(self) -> int:
        """The newest revision."""
        ...

    async def namespace(self, name: str) -> Namespace | None:
        """The namespace, if it is there."""
        ...

    async def function(self, namespace: str, name: str) -> FunctionAt:
        """The live function of this name."""
        ...

    async def function_by_uid(self, uid: str) -> FunctionAt:
        """The function of this identity, live or being deleted."""
        ...

    async def functions(self, namespace: str, *, kind: Kind | None, after: str, limit: int) -> Sequence[Function]:
        """Live functions of the namespace by name, those after `after`, at most `limit`."""
        ...

    async def version(self, function_uid: str, number: int) -> Version | None:
        """A version of a function; number 0: the newest."""
        ...

    async def versions(self, function_uid: str, *, before: int, limit: int) -> Sequence[Version]:
        """Versions of a function, newest first, those below number `before` (0: all), at most `limit`."""
        ...

    async def workload(self, function_uid: str) -> WorkloadSource | None:
        """The live function of this identity with its desired version."""
        ...

    async def switching_off(self) -> Sequence[Function]:
        """Live functions that are Ready once nothing routes to them any more."""
        ...

    async def span(self) -> Span:
        """Which events are there."""
        ...

    async def events(self, *, after: int, limit: int) -> Sequence[Event]:
        """Events after a revision, oldest first; at least `limit` if there are so many, and all of the last one's revision."""
        ...

    async def changes(self, types: frozenset[ResourceType], *, after: int, limit: int) -> ChangePage:
        """What changed after a revision, about `limit` events' worth."""
        ...

    async def all_functions(self, *, after: str, limit: int) -> Sequence[Function]:
        """All functions by uid, those after `after`, ones being deleted included."""
        ...

    async def all_versions(self, *, after: str, limit: int) -> Sequence[Version]:
        """All versions by uid, those after `after`."""
        ...

    async def trim(self, *, events_kept: int, answers_before: datetime) -> None:
        """Forget events older than the newest `events_kept` revisions, and answers from before a time."""
        ...


class Wakes(Protocol):
    """Tells that something may have been committed, by this process or another one."""

    async def wait(self) -> None:
        """Return after a commit, and now and then without one, so that a wake that was lost costs little."""
        ...


class ApiKeys(Protocol):
    """Whoever keeps namespaces' API keys."""

    async def delete_all(self, namespace: str) -> None:
        """Revoke all keys of a namespace; there may be none. Raises Unavailable."""
        ...


class Sealer(Protocol):
    """Keeps secret values: sealed at rest, shown as a digest."""

    def seal(self, value: str, *, context: str) -> Secret:
        """The value as it is stored. It opens only in the same context (the function and the variable)."""
        ...

    def open(self, secret: Secret, *, context: str) -> str:
        """The value. Raises Internal when its key is not known or it was tampered with."""
        ...

    def matches(self, secret: Secret, value: str, *, context: str) -> bool:
        """Whether this value is the stored one, by the digest of the key that sealed it."""
        ...

    def fingerprint(self, content: bytes) -> bytes:
        """A keyed digest that tells nothing of the content."""
        ...
