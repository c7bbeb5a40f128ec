"""Tokens are verified once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from sless_gateway.application.callers import AUDIENCES, Callers
from sless_gateway.domain import Caller
from sless_gateway.errors import AuthenticationAway
from sless_platform.errors import (
    DeadlineExceeded,
    Internal,
    PermissionDenied,
    PlatformError,
    Unauthenticated,
    Unavailable,
)
from sless_platform.identity import Principal

START = datetime(2026, 1, 2, tzinfo=UTC)
REFUSED = Unauthenticated("the token is not valid", reason="TOKEN_INVALID")


@dataclass
class Authority:
    """Answers what it is told to; counts its questions."""

    until: datetime = START + timedelta(minutes=5)
    remember_until: datetime = START + timedelta(minutes=5)
    fails: PlatformError | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()

    async def authenticate(self, token: str, audiences: Sequence[str]) -> Caller:
        self.asked.append(token)
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        principal = Principal(token, "sless-0123456789abcdef")
        return Caller(principal, dict.fromkeys(audiences, "identity"), self.until, self.remember_until)


@dataclass
class Clock:
    """The time that a test says."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now


async def test_a_token_is_asked_about_once() -> None:
    authority = Authority()
    callers = Callers(authority, now=Clock())

    first, second = await callers.authenticate("t"), await callers.authenticate("t")

    assert first is second
    assert (first.principal.subject, set(first.identities)) == ("t", set(AUDIENCES))
    assert authority.asked == ["t"]


async def test_a_token_is_forgotten_half_a_minute_before_its_identities_end() -> None:
    authority, clock = Authority(), Clock()
    callers = Callers(authority, now=clock)
    await callers.authenticate("t")

    clock.now = authority.until - timedelta(seconds=31)
    await callers.authenticate("t")
    assert len(authority.asked) == 1

    clock.now = authority.until - timedelta(seconds=30)
    await callers.authenticate("t")
    assert len(authority.asked) == 2


async def test_what_may_be_revoked_is_remembered_no_longer_than_auth_says() -> None:
    authority, clock = Authority(remember_until=START + timedelta(seconds=2)), Clock()
    callers = Callers(authority, now=clock)
    await callers.authenticate("t")

    clock.now = START + timedelta(seconds=1.9)
    await callers.authenticate("t")
    assert len(authority.asked) == 1

    clock.now = START + timedelta(seconds=2)
    await callers.authenticate("t")
    assert len(authority.asked) == 2


async def test_requests_at_once_ask_once() -> None:
    authority = Authority()
    authority.gate.clear()
    callers = Callers(authority, now=Clock())

    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(callers.authenticate("t")) for _ in range(50)]
        await asyncio.sleep(0)
        authority.gate.set()

    assert len({id(task.result()) for task in asking}) == 1
    assert authority.asked == ["t"]


async def test_who_joined_asks_again_when_the_one_that_asked_goes_away() -> None:
    authority = Authority()
    authority.gate.clear()
    callers = Callers(authority, now=Clock())
    first = asyncio.create_task(callers.authenticate("t"))
    await asyncio.sleep(0)
    second = asyncio.create_task(callers.authenticate("t"))
    await asyncio.sleep(0)

    first.cancel()
    await asyncio.wait({first})
    authority.gate.set()

    assert (await second).principal.subject == "t"
    assert first.cancelled()


async def test_who_joined_is_refused_with_the_one_that_asked() -> None:
    authority = Authority(fails=REFUSED)
    authority.gate.clear()
    callers = Callers(authority, now=Clock())
    asking = [asyncio.create_task(callers.authenticate("t")) for _ in range(3)]
    await asyncio.sleep(0)
    authority.gate.set()

    outcomes = await asyncio.gather(*asking, return_exceptions=True)

    assert all(outcome is REFUSED for outcome in outcomes)
    assert authority.asked == ["t"]


async def test_a_refusal_is_not_remembered() -> None:
    authority = Authority(fails=REFUSED)
    callers = Callers(authority, now=Clock())
    with pytest.raises(Unauthenticated):
        await callers.authenticate("t")

    authority.fails = None

    assert (await callers.authenticate("t")).principal.subject == "t"


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("x"),
        DeadlineExceeded("x"),
        Internal("x"),
        PermissionDenied("x"),
        Unauthenticated("the gateway's own identity is not valid"),
    ],
)
async def test_a_token_is_never_called_invalid_because_auth_is_away(error: PlatformError) -> None:
    callers = Callers(Authority(fails=error), now=Clock())

    with pytest.raises(AuthenticationAway):
        await callers.authenticate("t")


async def test_that_the_issuer_is_away_is_told() -> None:
    away = Unavailable("the issuer's keys can't be had", reason="ISSUER_UNAVAILABLE")

    with pytest.raises(Unavailable, match="issuer's keys"):
        await Callers(Authority(fails=away), now=Clock()).authenticate("t")


async def test_the_memory_is_bounded_and_forgets_the_least_used() -> None:
    authority = Authority()
    callers = Callers(authority, now=Clock(), memory=2)
    for token in ("a", "b", "a", "c", "a", "b"):
        await callers.authenticate(token)

    assert authority.asked == ["a", "b", "c", "b"]


async def test_a_token_of_any_bytes_can_be_asked_about() -> None:
    caller = await Callers(Authority(), now=Clock()).authenticate("\udcff")

    assert caller.principal.subject == "\udcff"
