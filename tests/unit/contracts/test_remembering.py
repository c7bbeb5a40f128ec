"""What auth says of a token, and how long that is believed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from sless.auth.v1 import auth_pb2
from sless_contracts.rpc import principal_of, remembered_until
from sless_platform.identity import Principal

ASKED = datetime(2026, 1, 2, tzinfo=UTC)


def answer(expires_in: int | None, remember_for: int | None) -> auth_pb2.AuthenticateResponse:
    message = auth_pb2.AuthenticateResponse(principal=auth_pb2.Principal(sub="alice"))
    if expires_in is not None:
        stamp = Timestamp()
        stamp.FromDatetime(ASKED + timedelta(seconds=expires_in))
        message.principal.expires_at.CopyFrom(stamp)
    if remember_for is not None:
        message.remember_for.CopyFrom(Duration(seconds=remember_for))
    return message


@pytest.mark.parametrize(
    ("expires_in", "remember_for", "seconds"),
    [(60, None, 60), (60, 2, 2), (1, 2, 1), (None, 2, 2), (60, 0, 0), (None, None, 0)],
)
def test_an_answer_is_believed_until_the_first_of_its_ends(
    expires_in: int | None, remember_for: int | None, seconds: int
) -> None:
    assert remembered_until(answer(expires_in, remember_for), ASKED) == ASKED + timedelta(seconds=seconds)


def test_a_principal_has_all_that_auth_says_of_it() -> None:
    message = auth_pb2.Principal(sub="alice", namespace="ns", roles=["admin"], api_key_id="k")

    assert principal_of(message) == Principal("alice", "ns", frozenset({"admin"}), credential="k")
