"""Tokens of a cloud that is asked about them."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sless_auth.adapters.identity_mint import SigningMint
from sless_auth.adapters.memory_keys import MemoryKeys
from sless_auth.adapters.remote_tokens import RemoteTokens
from sless_auth.application.authentication import Authentication
from sless_auth.application.key_tokens import KeyTokens
from sless_auth.domain.users import AdminRule
from sless_auth.errors import IssuerUnavailable, TokenInvalid
from sless_contracts.catalog import namespace_of
from sless_platform.identity import IdentitySigner

from tests.support.cloud import Cloud, running_cloud
from tests.support.identity import new_identity_keys

KEYS = new_identity_keys("auth")


class Clock:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class Place:
    """auth that asks a cloud."""

    def __init__(self, cloud: Cloud, remote_url: str = "", timeout: float = 20) -> None:
        self.cloud = cloud
        self.clock = Clock()
        self.tokens = RemoteTokens(
            remote_url or cloud.url,
            remembered=timedelta(seconds=30),
            timeout=timedelta(seconds=timeout),
            now=self.clock,
        )
        self.authentication = Authentication(
            tokens=self.tokens,
            keys=KeyTokens(MemoryKeys(), now=self.clock),
            mint=SigningMint(IdentitySigner(KEYS.private["auth"], "auth")),
            admin=AdminRule("groups", "operator"),
            now=self.clock,
        )

    def token(self, **changes: Any) -> str:
        """A token that nobody here can verify."""
        claims = {"sub": "alice", **changes}
        return ".".join(_part(part) for part in ({"alg": "HS256"}, claims, "signed"))


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with running_cloud() as cloud:
        made = Place(cloud)
        yield made
        await made.tokens.close()


async def test_a_token_that_the_cloud_takes_names_its_user(place: Place) -> None:
    token = place.token(groups=["operator"])

    caller = await place.authentication.authenticate(token=token)

    assert (caller.principal.subject, caller.principal.namespace) == ("alice", namespace_of("alice"))
    assert caller.principal.is_admin
    assert caller.expires_at is None
    assert place.cloud.asked == [token]


@pytest.mark.fault(21)
@pytest.mark.parametrize("status", [401, 403])
async def test_a_token_that_the_cloud_refuses_is_invalid(place: Place, status: int) -> None:
    place.cloud.status = status

    with pytest.raises(TokenInvalid, match="does not take the token"):
        await place.authentication.authenticate(token=place.token())


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 404},
        {"status": 404, "body": "<html>", "headers": {"Content-Type": "text/html"}},
        {"status": 200, "body": "<!doctype html><title>Log in</title>", "headers": {"Content-Type": "text/html"}},
        {"status": 200, "body": "  <html>", "headers": {"Content-Type": "application/json"}},
        {"status": 302, "headers": {"Location": "/login"}},
        {"status": 400},
        {"status": 405},
    ],
)
@pytest.mark.fault(38)
async def test_what_is_no_answer_of_the_api_names_the_address_that_was_asked(
    place: Place, answer: dict[str, Any]
) -> None:
    for name, value in answer.items():
        setattr(place.cloud, name, value)

    with pytest.raises(IssuerUnavailable, match="probably the wrong address") as refusal:
        await place.authentication.authenticate(token=place.token())

    assert place.cloud.url in refusal.value.message


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_cloud_that_fails_says_nothing_about_a_token(place: Place, status: int) -> None:
    place.cloud.status = status

    with pytest.raises(IssuerUnavailable, match=f"answered {status}; try again"):
        await place.authentication.authenticate(token=place.token())

    place.cloud.status = 200
    await place.authentication.authenticate(token=place.token())


async def test_a_cloud_that_is_away_says_nothing_about_a_token(unused_tcp_port: int) -> None:
    place = Place(Cloud(), remote_url=f"http://127.0.0.1:{unused_tcp_port}/me")

    with pytest.raises(IssuerUnavailable, match=f"can't be reached at http://127.0.0.1:{unused_tcp_port}/me"):
        await place.authentication.authenticate(token=place.token())
    await place.tokens.close()


async def test_a_cloud_that_is_silent_says_nothing_about_a_token(place: Place) -> None:
    place.cloud.gate.clear()
    impatient = Place(place.cloud, timeout=0.1)

    with pytest.raises(IssuerUnavailable, match="can't be reached"):
        await impatient.authentication.authenticate(token=place.token())
    await impatient.tokens.close()


async def test_a_token_is_never_taken_to_where_a_redirect_points(place: Place) -> None:
    async with running_cloud() as stranger:
        place.cloud.status, place.cloud.headers = 307, {"Location": stranger.url}

        with pytest.raises(IssuerUnavailable):
            await place.authentication.authenticate(token=place.token())

        assert stranger.asked == []


async def test_an_answer_is_remembered_for_a_while_and_no_longer(place: Place) -> None:
    token = place.token()
    for _ in range(3):
        caller = await place.authentication.authenticate(token=token)
    assert len(place.cloud.asked) == 1
    assert caller.remember_until == place.clock.now + timedelta(seconds=30)

    place.cloud.refused.add(token)
    place.clock.now += timedelta(seconds=30)

    with pytest.raises(TokenInvalid):
        await place.authentication.authenticate(token=token)


async def test_a_refusal_is_remembered_for_a_moment(place: Place) -> None:
    token = place.token()
    place.cloud.refused.add(token)
    for _ in range(3):
        with pytest.raises(TokenInvalid):
            await place.authentication.authenticate(token=token)
    assert len(place.cloud.asked) == 1

    place.cloud.refused.clear()
    place.clock.now += timedelta(seconds=5)

    assert (await place.authentication.authenticate(token=token)).principal.subject == "alice"


async def test_about_one_token_one_question_is_asked_at_a_time(place: Place) -> None:
    place.cloud.gate.clear()
    asking = [asyncio.create_task(place.authentication.authenticate(token=place.token())) for _ in range(20)]
    await asyncio.sleep(0)
    asking[0].cancel()
    place.cloud.gate.set()

    outcomes = await asyncio.gather(*asking, return_exceptions=True)

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert not any(isinstance(outcome, BaseException) for outcome in outcomes[1:])
    assert len(place.cloud.asked) == 1


async def test_an_expiry_in_the_payload_holds(place: Place) -> None:
    token = place.token(exp=(place.clock.now + timedelta(seconds=20)).timestamp())
    caller = await place.authentication.authenticate(token=token)
    assert caller.expires_at == place.clock.now + timedelta(seconds=20)

    place.clock.now += timedelta(seconds=30)

    with pytest.raises(TokenInvalid, match="expired"):
        await place.authentication.authenticate(token=token)


@pytest.mark.parametrize("claims", [{"sub": None}, {"sub": ""}, {"sub": 7}, {"sub": "a\nb"}, {"exp": "soon"}])
async def test_a_payload_that_names_no_user_is_invalid_though_the_cloud_takes_it(
    place: Place, claims: dict[str, Any]
) -> None:
    with pytest.raises(TokenInvalid):
        await place.authentication.authenticate(token=place.token(**claims))


@pytest.mark.parametrize("payload", [_part([1]), _part("x"), "%%%", "AAAA"])
async def test_a_payload_that_is_no_object_is_invalid(place: Place, payload: str) -> None:
    with pytest.raises(TokenInvalid):
        await place.authentication.authenticate(token=f"e30.{payload}.sig")


@pytest.mark.fault(21)
@pytest.mark.parametrize("token", ["", "x", "a b.c.d", "a.b\r\nX-Evil: 1.c", "a.b", "a.b.c.d", "e30.é.x"])
async def test_what_has_not_the_form_of_a_token_is_not_sent_anywhere(place: Place, token: str) -> None:
    with pytest.raises(TokenInvalid):
        await place.authentication.authenticate(token=token)

    assert place.cloud.asked == []


@pytest.mark.parametrize("status", [200, 401, 404, 500])
async def test_no_token_is_in_the_log(
    place: Place, status: int, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    place.cloud.status = status
    token = place.token()

    await asyncio.gather(place.authentication.authenticate(token=token), return_exceptions=True)

    written = "".join((*capfd.readouterr(), caplog.text))
    assert token not in written
    assert token.split(".")[1] not in written
