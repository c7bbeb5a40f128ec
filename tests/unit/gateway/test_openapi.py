"""The API's document: made from routes and types, up to date, and true of what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from sless_contracts import catalog, limits
from sless_gateway.domain import Kind
from sless_gateway.http_api.description import JSON
from sless_gateway.http_api.forms import FunctionForm, config_of, form_of
from sless_gateway.http_api.openapi import document
from sless_gateway.http_api.routes import ANY_METHOD, ROUTES
from sless_platform.errors import InvalidArgument

from tools.openapi_doc import SERVER, text

ROOT = Path(__file__).parents[3]
DOCUMENT = document(ROUTES, server=SERVER)
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = [(path, method, each) for path, item in DOCUMENT["paths"].items() for method, each in item.items()]
LEAST = {"runtime": "python3.11", "entrypoint": "handler.handle"}


def test_the_document_in_the_repository_is_up_to_date() -> None:
    assert (ROOT / "docs/openapi.json").read_text() == text(), "run `make openapi`"


def test_every_route_is_in_it_and_nothing_else() -> None:
    there = {(path, method) for path, method, _ in OPERATIONS}
    wanted = {(route.template, route.method.lower()) for route in ROUTES if route.method != ANY_METHOD}
    any_method = {route.template for route in ROUTES if route.method == ANY_METHOD}

    assert {(path, method) for path, method in there if path not in any_method} == wanted
    assert all((path, method) in there for path in any_method for method in ("get", "put", "delete", "patch", "trace"))


def test_operations_have_ids_of_their_own() -> None:
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]

    assert sorted(set(ids)) == sorted(ids)
    assert all("{" not in name for name in ids)


def test_every_schema_is_one() -> None:
    for schema in SCHEMAS.values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_references_lead_somewhere() -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            return (
                [value["$ref"]] if "$ref" in value else [each for item in value.values() for each in references(item)]
            )
        return [each for item in value for each in references(item)] if isinstance(value, list) else []

    for reference in references(DOCUMENT):
        found: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        assert found


def test_only_open_routes_want_no_token() -> None:
    for route in ROUTES:
        for operation in DOCUMENT["paths"][route.template].values():
            assert (operation.get("security") == []) == route.open


@pytest.mark.fault(34)
@pytest.mark.parametrize(
    ("field", "bounds"),
    [("memory_mb", catalog.MEMORY_MB), ("replicas", catalog.REPLICAS)],
    ids=str,
)
def test_ranges_are_those_that_are_judged_by(field: str, bounds: catalog.Range) -> None:
    schema = SCHEMAS["FunctionInput"]["properties"][field]

    assert (schema["minimum"], schema["maximum"]) == (bounds.low, bounds.high)
    for value in (bounds.low, bounds.high):
        config_of(form_of({**LEAST, field: value}, FunctionForm), Kind.FUNCTION)
    for value in (bounds.low - 1, bounds.high + 1):
        with pytest.raises(InvalidArgument):
            config_of(form_of({**LEAST, field: value}, FunctionForm), Kind.FUNCTION)


@pytest.mark.fault(34)
def test_runtimes_and_lengths_come_from_the_catalogue() -> None:
    fields = SCHEMAS["FunctionInput"]["properties"]

    assert fields["runtime"]["enum"] == list(catalog.RUNTIMES)
    assert fields["description"]["maxLength"] == limits.DESCRIPTION_CHARS.value
    assert fields["timeout_sec"]["maximum"] == catalog.TIMEOUT_SEC.high


def test_every_json_body_has_an_example_that_is_right() -> None:
    bodies = [content for route in ROUTES for content in route.description.body if content.media_type == JSON]

    assert bodies
    for content in bodies:
        form_of(content.example, content.shape)
    for _, _, operation in OPERATIONS:
        media = operation.get("requestBody", {}).get("content", {}).get(JSON)
        if media is not None:
            schema = json.loads(json.dumps({**media["schema"], "components": {"schemas": SCHEMAS}}))
            assert jsonschema_rs.validator_for(schema).is_valid(media["example"])


def test_every_tag_is_told() -> None:
    told = [tag["name"] for tag in DOCUMENT["tags"]]

    assert sorted(told) == sorted({tag for _, _, operation in OPERATIONS for tag in operation["tags"]})


def test_a_create_must_name_what_it_makes() -> None:
    schema = {**SCHEMAS["CreateFunctionInput"], "components": {"schemas": SCHEMAS}}
    validator = jsonschema_rs.validator_for(json.loads(json.dumps(schema)))

    assert validator.is_valid({**LEAST, "name": "hello"})
    assert not validator.is_valid(LEAST)
    assert not validator.is_valid({**LEAST, "name": "Hello"})
    assert not validator.is_valid({**LEAST, "name": "hello", "nonsense": 1})
    assert not validator.is_valid({**LEAST, "name": "hello", "env_vars": {"SLESS_X": "1"}})
