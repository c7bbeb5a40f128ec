"""Who is calling, and namespaces."""

from __future__ import annotations

import pytest

from tests.support.gateway import NAMESPACE, SUB, Gateway

ONE = f"/v1/namespaces/{NAMESPACE}"


async def test_whoami_tells_who_is_calling(gateway: Gateway) -> None:
    assert (await gateway.ask("GET", "/v1/whoami")).json() == {"sub": SUB, "namespace": NAMESPACE, "roles": []}
    admin = await gateway.ask("GET", "/v1/whoami", token=gateway.services.auth.token("root", "admin"))
    assert admin.json()["roles"] == ["admin"]


async def test_ensuring_a_namespace_twice_is_the_same(gateway: Gateway) -> None:
    first = await gateway.ask("POST", f"{ONE}/ensure")
    second = await gateway.ask("POST", f"{ONE}/ensure", body=b"{}")

    assert first.json() == second.json() == {"namespace": NAMESPACE, "created_at": "2026-01-02T03:04:05.678Z"}
    assert (first.status, second.status, first.header("etag")) == (200, 200, second.header("etag"))


@pytest.mark.parametrize("query", ["", "?confirm=", "?confirm=yes", f"?confirm={NAMESPACE}x", f"?x={NAMESPACE}"])
async def test_deleting_a_namespace_wants_its_name_again(gateway: Gateway, query: str) -> None:
    await gateway.ask("POST", f"{ONE}/ensure")

    answer = await gateway.ask("DELETE", f"{ONE}{query}")

    assert (answer.status, answer.json()["field"]) == (400, "confirm")
    assert NAMESPACE in gateway.services.registry.namespaces


async def test_a_namespace_is_deleted(gateway: Gateway) -> None:
    await gateway.ask("POST", f"{ONE}/ensure")

    first = await gateway.ask("DELETE", f"{ONE}?confirm={NAMESPACE}")
    second = await gateway.ask("DELETE", f"{ONE}?confirm={NAMESPACE}")

    assert (first.status, second.status) == (204, 404)


async def test_if_match_is_honoured(gateway: Gateway) -> None:
    etag = (await gateway.ask("POST", f"{ONE}/ensure")).header("etag")
    assert etag is not None

    wrong = await gateway.ask("DELETE", f"{ONE}?confirm={NAMESPACE}", ("If-Match", '"x"'))
    again = await gateway.ask("POST", f"{ONE}/ensure", ("If-Match", etag))
    right = await gateway.ask("DELETE", f"{ONE}?confirm={NAMESPACE}", ("If-Match", etag))

    assert (wrong.status, again.status, right.status) == (412, 200, 204)
