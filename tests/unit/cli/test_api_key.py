"""`sless api-key` against the fake gateway."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.cli import RunCli
from tests.support.fake_gateway import Fake


def test_the_secret_alone_goes_to_stdout(sless: RunCli, fake: Fake) -> None:
    ran = sless("api-key", "create", "ci")

    assert (ran.code, ran.out) == (0, "the secret\n")
    assert "can't be shown again" in ran.err
    assert fake.api_keys[0]["name"] == "ci"
    assert fake.api_keys[0]["expires_at"] is None


def test_programs_get_the_whole_key(sless: RunCli) -> None:
    made = json.loads(sless("api-key", "create", "ci", "-o", "json").out)

    assert (made["id"], made["name"], made["secret"]) == ("key0", "ci", "the secret")


def test_a_key_may_end_by_itself(sless: RunCli, fake: Fake) -> None:
    before = datetime.now(UTC)
    assert sless("api-key", "create", "ci", "--expires", "90d").code == 0

    ends = datetime.fromisoformat(fake.api_keys[0]["expires_at"])
    assert before + timedelta(days=90) <= ends <= datetime.now(UTC) + timedelta(days=90)


def test_a_length_that_is_none_is_told_by_its_option(sless: RunCli, fake: Fake) -> None:
    ran = sless("api-key", "create", "ci", "--expires", "soon")

    assert ran.code == 2
    assert "--expires 'soon'" in ran.err
    assert fake.requests == []


def test_keys_are_listed_without_secrets(sless: RunCli) -> None:
    assert "sless api-key create NAME" in sless("api-key", "list").err
    sless("api-key", "create", "ci")

    header, row = sless("api-key", "list").out.splitlines()
    assert header.split()[:3] == ["ID", "NAME", "HINT"]
    assert row.split()[:3] == ["key0", "ci", "sless_key"]
    assert "secret" not in json.loads(sless("api-key", "list", "-o", "json").out)[0]


def test_a_key_is_revoked_by_its_id(sless: RunCli, fake: Fake) -> None:
    sless("api-key", "create", "ci")

    assert sless("api-key", "delete", "key0").code == 0
    assert fake.api_keys == []


@pytest.mark.fault(8)
def test_a_key_that_is_not_there_is_said(sless: RunCli) -> None:
    ran = sless("api-key", "delete", "a/b")

    assert ran.code == 4
    assert ran.err == "Error: there is no API key a/b: `sless api-key list` shows those there are\n"


def test_a_revocation_whose_answer_was_lost_has_revoked(sless: RunCli, fake: Fake) -> None:
    sless("api-key", "create", "ci")
    fake.drops, fake.drop_after_effect = {"DELETE": 1}, True

    assert sless("api-key", "delete", "key0").code == 0
    assert fake.api_keys == []
