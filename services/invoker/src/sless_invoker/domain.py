"""Calls, and the functions they are for. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from sless_invoker.errors import (
    FunctionDisabled,
    FunctionNotFound,
    NotReady,
    TokenRequired,
    UrlDisabled,
)

_RETRY_AFTER: Final = timedelta(seconds=1)


class Trigger(enum.Enum):
    """What makes a call; the values are those that records and handlers see."""

    HTTP = "http"
    INVOKE = "invoke"


class Kind(enum.Enum):
    """Function or service."""

    FUNCTION = "function"
    SERVICE = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, without its body.

    ``path`` is the part below the function's URL and ``query`` the query, both as they came; ``headers`` keep order,
    spelling and duplicates. ``kind`` None means either. ``owner_authenticated``: somebody who may act in the
    namespace proved to be calling.
    """

    namespace: str
    name: str
    kind: Kind | None
    trigger: Trigger
    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    request_id: str
    invocation_id: str
    owner_authenticated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a call needs to know of a function. ``timeout`` None means no limit."""

    uid: str
    namespace: str
    name: str
    kind: Kind
    access_public: bool
    timeout: timedelta | None
    max_replicas: int
    concurrency: int
    idempotent: bool
    served: bool
    message: str
    revision: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The head of an answer, with the body's first bytes; ``complete``: they are all of it."""

    status: int
    headers: tuple[tuple[str, str], ...]
    handler_duration: timedelta | None
    version: int
    cold: bool
    first: bytes
    complete: bool


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a handler printed. ``at`` is UTC."""

    at: datetime
    stream: str
    text: str


def admit(call: Call, target: Target) -> None:
    """Judges whether this call may reach this function; raises the reason why not."""
    if call.kind is not None and call.kind is not target.kind:
        raise not_found(call)
    if call.trigger is Trigger.HTTP:
        _admit_to_url(call, target)
    elif target.max_replicas == 0:
        raise FunctionDisabled(f"{target.name} is switched off (replicas is 0): set replicas above 0 to call it")
    if not target.served:
        # The message may hold lines of the code: it is the owner's to read.
        why = f": {target.message}" if target.message and call.owner_authenticated else ""
        raise NotReady(f"{target.name} has not been ready yet{why}", retry_after=_RETRY_AFTER)


def not_found(call: Call) -> FunctionNotFound:
    """There is no such function, in the words of the call."""
    what = call.kind.value if call.kind is not None else "function"
    return FunctionNotFound(f"{what} not found: {call.name}")


def _admit_to_url(call: Call, target: Target) -> None:
    if target.kind is Kind.FUNCTION:
        # Nothing exposes a function: only services have a URL of their own.
        raise not_found(replace(call, kind=None))
    if target.max_replicas == 0:
        raise UrlDisabled(f"{target.name} is switched off")
    if not target.access_public and not call.owner_authenticated:
        raise TokenRequired(f"{target.name} wants a token of its owner: send Authorization: Bearer …")
