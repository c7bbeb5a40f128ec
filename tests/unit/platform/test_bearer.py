"""Bearer tokens, asked about once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sless_platform.errors import Unauthenticated
from sless_platform.identity import Principal
from sless_platform.rpc.bearer import AuthBearer, VerifiedBearer


class Asked:
    """Who is asked: every token but `bad` belongs to a user of its name, for a minute."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.now = datetime(2025, 1, 1, tzinfo=UTC)

    async def __call__(self, token: str) -> VerifiedBearer:
        self.tokens.append(token)
        if token == "bad":
            raise Unauthenticated("the token does not hold")
        return VerifiedBearer(Principal(token, "space"), self.now + timedelta(minutes=1))

    def bearer(self, memory: int = 100) -> AuthBearer:
        return AuthBearer(self, memory=memory, now=lambda: self.now)


async def test_a_token_is_asked_about_once() -> None:
    asked = Asked()
    bearer = asked.bearer()
    for _ in range(3):
        assert await bearer("alice") == Principal("alice", "space")
    assert asked.tokens == ["alice"]


async def test_an_answer_is_asked_for_again_when_it_has_expired() -> None:
    asked = Asked()
    bearer = asked.bearer()
    await bearer("alice")
    asked.now += timedelta(minutes=1)
    await bearer("alice")
    assert asked.tokens == ["alice", "alice"]


async def test_a_refusal_is_not_remembered() -> None:
    asked = Asked()
    bearer = asked.bearer()
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await bearer("bad")
    assert asked.tokens == ["bad", "bad"]


async def test_memory_is_bounded_and_keeps_what_is_used() -> None:
    asked = Asked()
    bearer = asked.bearer(memory=2)
    for token in ("alice", "bob", "alice", "carol", "alice", "bob"):
        await bearer(token)
    assert asked.tokens == ["alice", "bob", "carol", "bob"]


async def test_a_token_that_is_too_large_is_not_even_asked_about() -> None:
    asked = Asked()
    with pytest.raises(Unauthenticated, match="larger than 8192 bytes"):
        await asked.bearer()("x" * 8193)
    assert asked.tokens == []
