"""Functions and services over REST."""

from __future__ import annotations

from typing import Any

import pytest
from sless_platform.errors import FailedPrecondition, ResourceExhausted

from tests.support.gateway import EXTERNAL_URL, NAMESPACE, Gateway
from tests.support.raw_http import Answer

COLLECTIONS = ("functions", "services")
ALL = f"/v1/namespaces/{NAMESPACE}"
LEAST = {"runtime": "python3.11", "entrypoint": "handler.handle"}


def one(name: str = "hello", collection: str = "services") -> str:
    return f"{ALL}/{collection}/{name}"


async def create(gateway: Gateway, body: Any, collection: str = "services", *headers: tuple[str, str]) -> Answer:
    return await gateway.ask("POST", f"{ALL}/{collection}", *headers, json_body=body)


@pytest.mark.parametrize("collection", COLLECTIONS)
async def test_a_function_is_created_read_and_deleted(gateway: Gateway, collection: str) -> None:
    created = await gateway.create("hello", collection, memory_mb=256)
    read = await gateway.ask("GET", one(collection=collection))
    deleted = await gateway.ask("DELETE", one(collection=collection))

    assert created.json() == read.json()
    assert created.header("etag") == read.header("etag")
    assert (read.json()["kind"], read.json()["memory_mb"]) == (collection[:-1], 256)
    assert (deleted.status, deleted.body, deleted.header("content-length")) == (204, b"", None)
    assert (await gateway.ask("GET", one(collection=collection))).status == 404


@pytest.mark.fault(8)
@pytest.mark.parametrize("collection", COLLECTIONS)
@pytest.mark.parametrize("name", ["hello", "UPPER", "-", "a%2Fb", "a%00b", "x" * 64, "%F0%9F%98%80"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_what_is_unknown_is_404_also_for_delete(
    gateway: Gateway, method: str, name: str, collection: str
) -> None:
    answer = await gateway.ask(method, one(name, collection), json_body=LEAST)

    assert (answer.status, answer.code) == (404, "NOT_FOUND")


async def test_a_function_is_none_of_the_services_and_the_other_way(gateway: Gateway) -> None:
    await gateway.create("f", "functions")
    await gateway.create("s", "services")

    assert (await gateway.ask("GET", one("f", "services"))).status == 404
    assert (await gateway.ask("DELETE", one("s", "functions"))).status == 404
    assert (await create(gateway, {"name": "f", **LEAST}, "services")).status == 409


@pytest.mark.fault(9)
@pytest.mark.parametrize("collection", COLLECTIONS)
async def test_an_unknown_runtime_is_400_on_create_and_on_update(gateway: Gateway, collection: str) -> None:
    await gateway.create("hello", collection)
    wrong = {**LEAST, "runtime": "cobol"}

    for answer in (
        await create(gateway, {"name": "other", **wrong}, collection),
        await gateway.ask("PUT", one(collection=collection), json_body=wrong),
    ):
        assert (answer.status, answer.code, answer.json()["field"]) == (400, "INVALID_ARGUMENT", "runtime")
        assert "'cobol'" in answer.json()["error"]


@pytest.mark.parametrize("collection", COLLECTIONS)
async def test_a_list_is_a_plain_array_of_all_of_them(gateway: Gateway, collection: str) -> None:
    for number in range(5):
        await gateway.create(f"n{number}", collection)
    await gateway.create("other", "functions" if collection == "services" else "services")

    answer = await gateway.ask("GET", f"{ALL}/{collection}")

    assert [function["name"] for function in answer.json()] == ["n0", "n1", "n2", "n3", "n4"]
    assert answer.json()[0] == (await gateway.ask("GET", one("n0", collection))).json()


async def test_an_empty_list_is_an_empty_array(gateway: Gateway) -> None:
    assert (await gateway.ask("GET", f"{ALL}/functions")).body == b"[]"


async def test_urls_begin_where_clients_reach_the_gateway(gateway: Gateway) -> None:
    service = (await gateway.create("s", "services")).json()
    function = (await gateway.create("f", "functions")).json()

    assert service["url"] == service["invoke_url"] == f"{EXTERNAL_URL}/fn/{NAMESPACE}/s"
    assert (function["url"], function["invoke_url"]) == (None, f"{EXTERNAL_URL}{ALL}/functions/f/invoke")


async def test_replacing_gives_what_is_left_out_its_default(gateway: Gateway) -> None:
    await gateway.create(memory_mb=256, env_vars={"A": "1"}, labels={"l": "1"}, access="authenticated", replicas=3)

    answer = await gateway.ask("PUT", one(), json_body={**LEAST, "description": "new"})

    function = answer.json()
    assert (answer.status, function["generation"], function["description"]) == (200, 2, "new")
    assert (function["memory_mb"], function["env_vars"], function["labels"]) == (128, {}, {})
    assert (function["access"], function["replicas"]) == ("public", {"min": 1, "max": 1, "concurrency": 64})


@pytest.mark.parametrize("field", ["runtime", "entrypoint"])
async def test_replacing_wants_what_is_required(gateway: Gateway, field: str) -> None:
    await gateway.create()
    body = {name: value for name, value in LEAST.items() if name != field}

    answer = await gateway.ask("PUT", one(), json_body=body)

    assert (answer.status, answer.json()["field"]) == (400, field)


async def test_what_was_read_can_be_written_back(gateway: Gateway) -> None:
    read = (await gateway.create(secret_env={"S": "hidden"}, env_vars={"A": "1"})).json()

    written = await gateway.ask("PUT", one(), json_body=read)

    assert written.status == 200
    assert {**written.json(), "generation": 1} == read
    assert "hidden" not in str(read)


async def test_a_name_cannot_be_changed(gateway: Gateway) -> None:
    await gateway.create()

    answer = await gateway.ask("PUT", one(), json_body={**LEAST, "name": "other"})

    assert (answer.status, answer.json()["field"]) == (400, "name")


async def test_creating_wants_a_name(gateway: Gateway) -> None:
    answer = await create(gateway, LEAST)

    assert (answer.status, answer.json()["field"], answer.json()["error"]) == (400, "name", "name is required")


async def test_a_name_that_is_taken_is_409(gateway: Gateway) -> None:
    await gateway.create()

    answer = await create(gateway, {"name": "hello", **LEAST})

    assert (answer.status, answer.code) == (409, "ALREADY_EXISTS")


@pytest.mark.fault(29)
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_the_loser_of_two_writers_is_told(gateway: Gateway, method: str) -> None:
    etag = (await gateway.create()).header("etag")
    assert etag is not None

    first = await gateway.ask("PUT", one(), ("If-Match", etag), json_body={**LEAST, "description": "first"})
    second = await gateway.ask(method, one(), ("If-Match", etag), json_body={**LEAST, "description": "second"})

    assert (first.status, second.status, second.code) == (200, 412, "PRECONDITION_FAILED")
    assert first.header("etag") not in {None, etag}
    assert (await gateway.ask("GET", one())).json()["description"] == "first"


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("*", 200), ("{etag}", 200), ('"x", {etag}', 200), ('{etag},"x"', 200),
        ('"x"', 412), ('""', 412), ('"*"', 412), ("W/{etag}", 412), ('"x", "y"', 412), ("x", 400),
    ],
)  # fmt: skip
async def test_if_match_is_honoured(gateway: Gateway, condition: str, status: int) -> None:
    etag = (await gateway.create()).header("etag")

    answer = await gateway.ask("PUT", one(), ("If-Match", condition.format(etag=etag)), json_body=LEAST)

    assert answer.status == status


async def test_a_state_of_what_does_not_exist_is_412(gateway: Gateway) -> None:
    body = {"name": "hello", **LEAST}

    assert (await create(gateway, body, "services", ("If-Match", '"x"'))).status == 412
    assert (await create(gateway, body, "services", ("If-Match", "*"))).status == 201


async def test_each_write_has_a_request_id_of_its_own(gateway: Gateway) -> None:
    await gateway.create()
    await gateway.ask("PUT", one(), ("X-Request-Id", "same"), json_body=LEAST)
    await gateway.ask("PUT", one(), ("X-Request-Id", "same"), json_body=LEAST)

    writes = [request.request_id for request in gateway.services.registry.requests if hasattr(request, "request_id")]
    assert len(set(writes)) == len(writes) == 3
    assert all(len(one) == 36 for one in writes)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "line 1, column 1"),
        (b"{", "line 1, column 2"),
        (b'{\n "runtime": }', "line 2, column 13"),
        (b'{"a": 1} x', "line 1, column 10"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b'{"a": NaN}', "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"memory_mb": ' + b"9" * 5_000 + b"}", "too many digits"),
        (b'{"memory_mb": 64, "memory_mb": 128}', 'has "memory_mb" twice'),
        (b'{"env_vars": {"A": "1", "B": "2", "\\u0041": "3"}}', 'has "A" twice'),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
    ],
)
async def test_what_is_no_json_object_is_told_with_its_place(gateway: Gateway, body: bytes, said: str) -> None:
    answer = await gateway.ask(
        "POST", f"{ALL}/services", ("Content-Type", "application/json"), ("Content-Length", str(len(body))) if not body
        else ("X-Any", "x"), body=body
    )  # fmt: skip

    assert (answer.status, answer.code) == (400, "INVALID_ARGUMENT")
    assert said in answer.json()["error"]


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8", None])
async def test_json_is_taken(gateway: Gateway, content_type: str | None) -> None:
    headers = [] if content_type is None else [("Content-Type", content_type)]
    body = b'{"name": "hello", "runtime": "python3.11", "entrypoint": "a.b"}'

    assert (await gateway.ask("POST", f"{ALL}/services", *headers, body=body)).status == 201


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_other_types_are_415(gateway: Gateway, content_type: str) -> None:
    answer = await gateway.ask("POST", f"{ALL}/services", ("Content-Type", content_type), body=b"{}")

    assert (answer.status, answer.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_body_beyond_a_mebibyte_is_413(gateway: Gateway) -> None:
    await gateway.create()
    body = {**LEAST, "description": "x" * 1024 * 1024}

    answer = await gateway.ask("PUT", one(), json_body=body)

    assert (answer.status, answer.code) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ResourceExhausted("1000 functions are there", reason="LIMIT_REACHED"), 409, "CONFLICT"),
        (FailedPrecondition("no", reason="REQUEST_ID_REUSED"), 409, "CONFLICT"),
        (ValueError("a driver's text with a password"), 500, "INTERNAL"),
    ],
)
async def test_what_the_registry_refuses_is_told(gateway: Gateway, error: Exception, status: int, code: str) -> None:
    def refuse(_request: Any, _namespace: str) -> None:
        raise error

    gateway.services.registry._enter = refuse  # type: ignore[assignment]

    answer = await create(gateway, {"name": "hello", **LEAST})

    assert (answer.status, answer.code) == (status, code)
    assert "password" not in answer.json()["error"]


async def test_a_registry_that_is_away_is_503_and_then_back(gateway: Gateway) -> None:
    await gateway.create()
    await gateway.services.stop("registry")

    away = await gateway.ask("GET", one())
    await gateway.services.start("registry")

    assert (away.status, away.code, away.header("retry-after")) == (503, "UNAVAILABLE", "1")
    assert "registry" not in away.json()["error"]
    assert (await gateway.ask("GET", one())).status == 200
