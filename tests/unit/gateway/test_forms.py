"""What a client may say of a function, and what it is told otherwise."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sless_contracts import catalog
from sless_gateway.domain import Access, KeptSecret, Kind, Replicas
from sless_gateway.http_api.forms import FunctionForm, config_of, form_of
from sless_gateway.http_api.shapes import FunctionShape
from sless_platform.errors import InvalidArgument

LEAST = {"runtime": "python3.11", "entrypoint": "handler.handle"}


def config(kind: Kind = Kind.FUNCTION, /, **fields: Any) -> Any:
    return config_of(form_of({**LEAST, **fields}, FunctionForm), kind)


def refusal(kind: Kind = Kind.FUNCTION, /, **fields: Any) -> tuple[str, str | None]:
    with pytest.raises(InvalidArgument) as caught:
        config(kind, **fields)
    return caught.value.message, caught.value.field


@pytest.mark.fault(34)
@pytest.mark.parametrize("kind", Kind)
def test_what_is_left_out_has_the_catalogues_default(kind: Kind) -> None:
    made, defaults = config(kind), catalog.DEFAULTS[kind.value]

    assert made.memory_mb == catalog.DEFAULT_MEMORY_MB
    assert made.timeout_sec == defaults.timeout_sec
    assert made.replicas == Replicas(defaults.min_replicas, defaults.max_replicas, defaults.concurrency)
    assert (made.access, made.idempotent, made.env_vars, made.secret_env, made.labels) == (
        Access.PUBLIC,
        False,
        {},
        {},
        {},
    )


def test_null_is_the_same_as_left_out() -> None:
    optional = [name for name in FunctionForm.__struct_fields__ if name not in LEAST]

    assert config(**dict.fromkeys(optional)) == config()


@pytest.mark.parametrize("field", ["runtime", "entrypoint"])
def test_a_required_field_that_is_missing_is_named(field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        form_of({name: value for name, value in LEAST.items() if name != field}, FunctionForm)

    assert (caught.value.message, caught.value.field) == (f"{field} is required", field)


def test_an_unknown_field_is_refused_and_named() -> None:
    assert refusal(memry_mb=5) == ('unknown field "memry_mb"', "memry_mb")
    assert refusal(replicas={"mn": 1}) == ('unknown field "replicas.mn"', "replicas.mn")


def test_what_was_read_can_be_written_back() -> None:
    readable = set(FunctionShape.__struct_fields__)

    assert readable <= set(FunctionForm.__struct_fields__)
    assert config(status=5, url=[], generation="x", kind={}, namespace=1, created_at=True) == config()


@pytest.mark.parametrize(
    ("fields", "message", "field"),
    [
        ({"memory_mb": "5"}, 'memory_mb must be a whole number, not "5"', "memory_mb"),
        ({"memory_mb": 5.5}, "memory_mb must be a whole number, not 5.5", "memory_mb"),
        ({"memory_mb": True}, "memory_mb must be a whole number, not true", "memory_mb"),
        ({"timeout_sec": [1]}, "timeout_sec must be a whole number, not [1]", "timeout_sec"),
        ({"runtime": 3.11}, "runtime must be a string, not 3.11", "runtime"),
        ({"runtime": None}, "runtime must be a string, not null", "runtime"),
        ({"idempotent": 1}, "idempotent must be true or false, not 1", "idempotent"),
        ({"env_vars": ["A"]}, 'env_vars must be an object, not ["A"]', "env_vars"),
        ({"env_vars": {"A": "b", "K": 5}}, "env_vars.K must be a string, not 5", "env_vars.K"),
        ({"labels": {"a": None}}, "labels.a must be a string, not null", "labels.a"),
        (
            {"replicas": "1"},
            'replicas must be a whole number, or an object with min, max and concurrency, not "1"',
            "replicas",
        ),
        ({"replicas": {"min": "1"}}, 'replicas.min must be a whole number, not "1"', "replicas.min"),
        ({"access": "private"}, 'access must be public or authenticated, not "private"', "access"),
        ({"access": 1}, "access must be a string, not 1", "access"),
    ],
)
def test_a_wrong_type_is_told_with_the_field_and_the_value(fields: dict[str, Any], message: str, field: str) -> None:
    assert refusal(**fields) == (message, field)


@pytest.mark.fault(34)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory_mb": 0}, "memory_mb must be from 64 to 8192, not 0"),
        ({"memory_mb": 5}, "memory_mb must be from 64 to 8192, not 5"),
        ({"memory_mb": 2**31}, f"memory_mb must be from 64 to 8192, not {2**31}"),
        ({"memory_mb": 10**40}, f"memory_mb must be from 64 to 8192, not {10**40}"),
        ({"timeout_sec": 0}, "timeout_sec must be from 1 to 900, not 0"),
        ({"timeout_sec": 901}, "timeout_sec must be from 1 to 900, not 901"),
        ({"replicas": -1}, "replicas must be from 0 to 100, not -1"),
        ({"replicas": {"max": 2**40}}, f"replicas.max must be from 0 to 100, not {2**40}"),
        ({"replicas": {"concurrency": 0}}, "replicas.concurrency must be from 1 to 1000, not 0"),
    ],
)
def test_numbers_that_the_contract_cannot_carry_are_told_as_the_registry_would(
    fields: dict[str, Any], message: str
) -> None:
    assert refusal(**fields)[0] == message


def test_a_very_long_value_is_cut() -> None:
    message, _ = refusal(memory_mb="x" * 10_000)

    assert len(message) < 200


@pytest.mark.parametrize(
    "secret",
    [5, {"sha": "hidden"}, {}, {"sha256": 5}, ["hidden"]],
)
def test_a_secret_is_never_repeated(secret: Any) -> None:
    message, field = refusal(secret_env={"GOOD": "fine", "K": secret})

    assert field is not None
    assert field.startswith("secret_env.K")
    assert "hidden" not in message
    assert "fine" not in message


def test_a_secret_is_a_new_value_or_the_stored_one() -> None:
    made = config(secret_env={"A": "value", "B": {"sha256": "ab"}})

    assert made.secret_env == {"A": "value", "B": KeptSecret("ab")}
    assert "value" not in repr(made)


@pytest.mark.parametrize("asked", [None, 0])
def test_a_service_without_a_timeout_has_no_limit(asked: int | None) -> None:
    assert config(Kind.SERVICE, timeout_sec=asked).timeout_sec is None


def test_a_service_may_have_a_timeout() -> None:
    assert config(Kind.SERVICE, timeout_sec=900).timeout_sec == 900


def test_a_bare_number_of_replicas_is_both_bounds() -> None:
    assert config(replicas=0).replicas == Replicas(0, 0, 16)
    assert config(Kind.SERVICE, replicas=3).replicas == Replicas(3, 3, 64)


def test_replicas_left_out_have_the_kinds_default() -> None:
    assert config(replicas={"max": 3}).replicas == Replicas(0, 3, 16)


def test_the_shape_can_be_described() -> None:
    described = msgspec.json.schema(FunctionForm)["$defs"]["FunctionForm"]

    assert described["required"] == ["runtime", "entrypoint"]
    assert described["additionalProperties"] is False
