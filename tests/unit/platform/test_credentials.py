"""Whose identity a channel sends, and what a call is sent with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import jwt
import pytest
import structlog
from sless_platform.errors import InvalidArgument
from sless_platform.identity import IdentitySigner, IdentityVerifier, Principal
from sless_platform.logging import bind
from sless_platform.rpc.client import ServiceIdentity, UserIdentity, with_identity
from sless_platform.rpc.policy import CallPolicy

from tests.support.identity import new_identity_keys

KEYS = new_identity_keys("store")
START = datetime(2025, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def service_identity(clock: Clock) -> ServiceIdentity:
    signer = IdentitySigner(KEYS.private["store"], "store")
    return ServiceIdentity(signer, "store", "mail", ttl=timedelta(minutes=4), now=clock)


def test_a_service_signs_for_one_audience() -> None:
    token = service_identity(Clock()).token()
    assert IdentityVerifier(KEYS.public, "mail").verify(token, START) == Principal("store", service="store")


def test_a_token_is_signed_anew_at_half_of_its_life() -> None:
    clock = Clock()
    identity = service_identity(clock)
    first = identity.token()
    clock.now = START + timedelta(seconds=119)
    assert identity.token() == first
    clock.now = START + timedelta(seconds=120)
    second = identity.token()
    assert second != first
    expires = jwt.decode(second, options={"verify_signature": False})["exp"]
    assert expires == int(clock.now.timestamp()) + 240


def test_a_key_cannot_speak_for_another_service() -> None:
    with pytest.raises(ValueError, match="cannot speak for the service 'mail'"):
        ServiceIdentity(IdentitySigner(KEYS.private["store"], "store"), "mail", "other")


def test_a_users_token_is_sent_as_it_is() -> None:
    assert UserIdentity("token").token() == "token"


def test_a_call_carries_the_channels_identity_under_its_key() -> None:
    policy = CallPolicy(identity=UserIdentity("mine"), identity_metadata="who")
    assert policy.metadata(None) == [("who", "mine")]
    assert policy.metadata((("a", "b"),)) == [("a", "b"), ("who", "mine")]


def test_a_calls_own_identity_replaces_the_channels_whatever_the_key() -> None:
    for key in ("who", "x-identity"):
        policy = CallPolicy(identity=UserIdentity("mine"), identity_metadata=key)
        assert policy.metadata(with_identity("yours")) == [(key, "yours")]


def test_a_channel_without_identity_sends_none() -> None:
    assert CallPolicy().metadata(None) == []


def test_the_request_id_is_passed_on_unless_the_call_has_one() -> None:
    structlog.contextvars.clear_contextvars()
    try:
        bind(request_id="r-1")
        assert CallPolicy().metadata(None) == [("x-request-id", "r-1")]
        assert CallPolicy().metadata((("x-request-id", "r-2"),)) == [("x-request-id", "r-2")]
    finally:
        structlog.contextvars.clear_contextvars()


@pytest.mark.parametrize("value", ["line\nbreak", "é", "\x00"])
def test_what_cannot_be_sent_is_named(value: str) -> None:
    with pytest.raises(InvalidArgument, match="authorization holds characters"):
        CallPolicy().metadata((("authorization", value),))
