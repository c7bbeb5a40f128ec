"""API keys over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.gateway import NAMESPACE, SUB, Gateway

KEYS = f"/v1/namespaces/{NAMESPACE}/api-keys"


async def test_a_new_key_shows_its_secret_once(gateway: Gateway) -> None:
    made = await gateway.ask("POST", KEYS, json_body={"name": "ci", "expires_at": "2031-01-02T03:04:05+01:00"})

    assert made.status == 201
    body = made.json()
    assert list(body) == [
        "id", "name", "hint", "created_by", "created_at", "expires_at", "last_used_at", "secret",
    ]  # fmt: skip
    assert body["secret"] == "the secret"
    assert (body["created_by"], body["expires_at"], body["last_used_at"]) == (SUB, "2031-01-02T02:04:05.000Z", None)
    assert made.header("etag") == f'"{body["id"]}"'
    assert made.header("cache-control") == "no-store"

    listed = (await gateway.ask("GET", KEYS)).json()
    assert listed == [{name: value for name, value in body.items() if name != "secret"}]


async def test_the_list_is_all_of_them_newest_first(gateway: Gateway) -> None:
    for name in ("a", "b", "c"):
        await gateway.ask("POST", KEYS, json_body={"name": name})

    assert [key["name"] for key in (await gateway.ask("GET", KEYS)).json()] == ["c", "b", "a"]


@pytest.mark.fault(8)
async def test_a_revoked_key_is_gone(gateway: Gateway) -> None:
    key = (await gateway.ask("POST", KEYS, json_body={"name": "ci"})).json()

    assert (await gateway.ask("DELETE", f"{KEYS}/{key['id']}")).status == 204
    again = await gateway.ask("DELETE", f"{KEYS}/{key['id']}")
    assert (again.status, again.code) == (404, "NOT_FOUND")
    assert (await gateway.ask("GET", KEYS)).json() == []


@pytest.mark.fault(29)
async def test_conditions_hold(gateway: Gateway) -> None:
    made = await gateway.ask("POST", KEYS, json_body={"name": "ci"})
    one = f"{KEYS}/{made.json()['id']}"

    assert (await gateway.ask("POST", KEYS, ("If-Match", '"x"'), json_body={"name": "b"})).status == 412
    assert (await gateway.ask("DELETE", one, ("If-Match", '"x"'))).status == 412
    assert (await gateway.ask("DELETE", one, ("If-Match", made.header("etag") or ""))).status == 204


@pytest.mark.parametrize(
    ("body", "field", "sentence"),
    [
        ({}, "name", "name is required"),
        ({"name": 7}, "name", "name must be a string, not 7"),
        ({"name": None}, "name", "name must be a string, not null"),
        ({"name": ""}, "name", "name must be 1 to 63 characters"),
        ({"name": "a", "secret": "mine"}, "secret", 'unknown field "secret"'),
        ({"name": "a", "expires_at": "soon"}, "expires_at", 'expires_at must be a time such as'),
        ({"name": "a", "expires_at": 1}, "expires_at", "expires_at must be a time such as"),
        ({"name": "a", "expires_at": "2031-01-02T03:04:05"}, "expires_at", "expires_at must be a time such as"),
        ({"name": "a", "expires_at": "0001-01-01T00:00:00+23:00"}, "expires_at", "expires_at must be a time such as"),
        ({"name": "a", "expires_at": "9999-12-31T23:59:59-23:00"}, "expires_at", "expires_at must be a time such as"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_named(gateway: Gateway, body: Any, field: str, sentence: str) -> None:
    answer = await gateway.ask("POST", KEYS, json_body=body)

    assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")
    assert answer.json()["field"] == field
    assert sentence in answer.json()["error"]


async def test_read_only_fields_are_ignored(gateway: Gateway) -> None:
    made = (await gateway.ask("POST", KEYS, json_body={"name": "ci"})).json()
    del made["secret"]

    again = await gateway.ask("POST", KEYS, json_body=made)

    assert again.status == 201
    assert again.json()["id"] != made["id"]


async def test_with_a_key_no_key_is_made(gateway: Gateway) -> None:
    key = gateway.services.auth.api_key(SUB, NAMESPACE)

    answer = await gateway.ask("POST", KEYS, json_body={"name": "ci"}, token=key)

    assert (answer.status, answer.code) == (403, "PERMISSION_DENIED")


async def test_a_key_is_asked_about_again_when_auth_says_so(gateway: Gateway) -> None:
    auth = gateway.services.auth
    key = auth.api_key(SUB, NAMESPACE)
    auth.remember_for = Duration(seconds=3600)
    for _ in range(2):
        await gateway.ask("GET", "/v1/whoami", token=key)
    assert auth.asked == 1

    other = auth.api_key(SUB, NAMESPACE)
    auth.remember_for = Duration()
    for _ in range(2):
        await gateway.ask("GET", "/v1/whoami", token=other)
    assert auth.asked == 3


async def test_a_key_says_whose_it_is(gateway: Gateway) -> None:
    answer = await gateway.ask("GET", "/v1/whoami", token=gateway.services.auth.api_key(SUB, "sless-0123456789abcdef"))

    assert answer.json() == {"sub": SUB, "namespace": "sless-0123456789abcdef", "roles": []}
