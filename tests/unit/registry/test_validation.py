"""What a request may say: by the catalogue and the limits, with the field and the value in the sentence."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sless_contracts import catalog, limits
from sless_registry.domain import validation
from sless_registry.domain.drafts import MUTABLE_FIELDS, Draft, SecretDraft, merged
from sless_registry.domain.resources import Access, Configuration, Kind, Replicas, Secret
from sless_registry.errors import InvalidField

DRAFT = Draft(runtime="python3.11", entrypoint="handler.handle")


def validated(kind: Kind = Kind.FUNCTION, stored: dict[str, Secret] | None = None, **fields: Any) -> Configuration:
    """The configuration that a draft becomes."""

    def store(name: str, draft: SecretDraft) -> Secret:
        return Secret(f"digest of {draft.value}", "key", bytes(28) + (draft.value or "").encode())

    draft = replace(DRAFT, **fields)
    return validation.configuration(draft, kind, stored=stored or {}, store_secret=store)


@pytest.mark.fault(34)
@pytest.mark.parametrize("kind", Kind)
def test_defaults_are_the_catalogues(kind: Kind) -> None:
    made, defaults = validated(kind), catalog.DEFAULTS[kind]

    assert made.memory_mb == catalog.DEFAULT_MEMORY_MB
    assert made.timeout == (None if defaults.timeout_sec is None else timedelta(seconds=defaults.timeout_sec))
    assert made.replicas == Replicas(defaults.min_replicas, defaults.max_replicas, defaults.concurrency)
    assert made.access is Access.PUBLIC


@pytest.mark.parametrize("runtime", catalog.RUNTIMES)
def test_every_runtime_of_the_catalogue_is_taken(runtime: str) -> None:
    assert validated(runtime=runtime).runtime == runtime


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"memory_mb": 5}, "memory_mb", "memory_mb must be from 64 to 8192, not 5"),
        ({"memory_mb": 8193}, "memory_mb", "memory_mb must be from 64 to 8192, not 8193"),
        ({"memory_mb": -1}, "memory_mb", "memory_mb must be from 64 to 8192, not -1"),
        ({"runtime": ""}, "runtime", "runtime is required"),
        ({"runtime": "cobol"}, "runtime", "runtime must be one of python3.11, not 'cobol'"),
        ({"entrypoint": ""}, "entrypoint", "entrypoint is required"),
        ({"entrypoint": "handle"}, "entrypoint", "entrypoint must be module.function, not 'handle'"),
        ({"entrypoint": "a/../b.handle"}, "entrypoint", "entrypoint must be module.function, not 'a/../b.handle'"),
        ({"entrypoint": "x" * 2000 + ".y"}, "entrypoint", "entrypoint must be module.function, not 'xxxx"),
        ({"timeout": timedelta(0)}, "timeout_sec", "timeout_sec must be from 1 to 900, not 0"),
        ({"timeout": timedelta(seconds=901)}, "timeout_sec", "timeout_sec must be from 1 to 900, not 901"),
        ({"timeout": timedelta(seconds=-5)}, "timeout_sec", "timeout_sec must be from 1 to 900, not -5"),
        ({"timeout": timedelta(seconds=1.5)}, "timeout_sec", "timeout_sec must be a whole number of seconds, not 1.5"),
        ({"replicas": Replicas(0, 101, 1)}, "replicas.max", "replicas.max must be from 0 to 100, not 101"),
        ({"replicas": Replicas(-1, 1, 1)}, "replicas.min", "replicas.min must be from 0 to 100, not -1"),
        ({"replicas": Replicas(5, 3, 1)}, "replicas.min", "replicas.min must be at most replicas.max (3), not 5"),
        ({"replicas": Replicas(0, 1, 0)}, "replicas.concurrency", "replicas.concurrency must be from 1 to 1000, not 0"),
        ({"display_name": "x" * 256}, "display_name", "display_name must be at most 255 characters, not 256"),
        ({"description": "x" * 4097}, "description", "description must be at most 4096 characters, not 4097"),
        ({"description": "a\0b"}, "description", "description must not contain a zero byte, not 'a\\x00b'"),
        ({"labels": {"": "x"}}, "labels", "labels must not have an empty key"),
        ({"labels": {"k": "x" * 256}}, "labels.k", "labels.k must be at most 255 characters, not 256"),
        ({"labels": {str(n): "" for n in range(65)}}, "labels", "labels must be at most 64, not 65"),
        ({"env_vars": {"1X": ""}}, "env_vars.1X", "env_vars names must be letters, digits and underscores"),
        ({"env_vars": {"": ""}}, "env_vars.", "env_vars names must be letters, digits and underscores"),
        ({"env_vars": {"SLESS_X": ""}}, "env_vars.SLESS_X", "env_vars names must not begin with SLESS_, which is the"),
        ({"env_vars": {"X": "a\0"}}, "env_vars.X", "env_vars.X must not contain a zero byte, not 'a\\x00'"),
        ({"secret_env": {"SLESS_X": SecretDraft("s")}}, "secret_env.SLESS_X", "secret_env names must not begin with"),
        ({"secret_env": {"X": SecretDraft("s\0")}}, "secret_env.X", "secret_env.X must not contain a zero byte"),
    ],
)  # fmt: skip
@pytest.mark.fault(9)
def test_what_is_not_allowed_is_refused_naming_field_and_value(
    fields: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        validated(**fields)

    assert refused.value.field == field
    assert refused.value.message.startswith(message)


def test_long_values_are_shortened_in_the_sentence() -> None:
    with pytest.raises(InvalidField) as refused:
        validated(entrypoint="x" * 100_000)

    assert len(refused.value.message) < 200


def test_a_field_that_is_named_by_the_user_is_shortened() -> None:
    with pytest.raises(InvalidField) as refused:
        validated(env_vars={"9" * 100_000: ""})

    assert refused.value.field is not None
    assert len(refused.value.field) < 100


@pytest.mark.parametrize("timeout", [None, timedelta(0)])
def test_a_service_without_a_timeout_has_no_limit(timeout: timedelta | None) -> None:
    assert validated(Kind.SERVICE, timeout=timeout).timeout is None
    assert validated(Kind.SERVICE, timeout=timedelta(seconds=900)).timeout == timedelta(seconds=900)
    with pytest.raises(InvalidField):
        validated(Kind.SERVICE, timeout=timedelta(seconds=901))


def test_a_variable_is_given_once() -> None:
    with pytest.raises(InvalidField, match=r"secret_env\.X is in env_vars too: give it once"):
        validated(env_vars={"X": "1"}, secret_env={"X": SecretDraft("2")})


def test_variables_are_bounded_all_together() -> None:
    most = limits.ENVIRONMENT_BYTES.value
    half = {"A": "é" * ((most // 2 - 1) // 2)}
    fits = {"B": SecretDraft("x" * (most // 2 - 1))}
    validated(env_vars=half, secret_env=fits)

    with pytest.raises(InvalidField, match=rf"together must be at most {most} bytes, not {most + 1}"):
        validated(env_vars={"A": "x" * (most // 2 - 1)}, secret_env={"B": SecretDraft("x" * (most // 2))})


def test_kept_secrets_count_too() -> None:
    most = limits.ENVIRONMENT_BYTES.value
    stored = {"B": Secret("digest", "key", bytes(28 + most - 2))}

    with pytest.raises(InvalidField, match="together must be at most"):
        validated(env_vars={"A": "x"}, secret_env={"B": SecretDraft(digest="digest")}, stored=stored)


@pytest.mark.parametrize("name", ["a", "hello-1", "1a", "x" * 63])
def test_dns_labels_are_names(name: str) -> None:
    assert validation.function_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "Hello", "a.b", "a_b", "x" * 64, "ä", "a\n"])
def test_what_is_no_dns_label_is_no_name(name: str) -> None:
    with pytest.raises(InvalidField) as refused:
        validation.function_name(name)
    assert refused.value.field == "name"


@pytest.mark.parametrize(
    "name", ["", "sless-", "sless-0123456789abcdeg", "other-0123456789abcdef", "sless-0123456789abcdef\n"]
)
def test_what_is_no_namespace_is_refused(name: str) -> None:
    with pytest.raises(InvalidField, match="namespace must be"):
        validation.namespace_name(name)


def test_a_request_id_is_a_uuid_in_any_spelling() -> None:
    text = "0199e325-1cdf-7cda-9319-e5302a85e291"
    assert validation.request_id(text.upper()) == text
    with pytest.raises(InvalidField, match="request_id must be a UUID, not 'x'"):
        validation.request_id("x")


def current() -> Configuration:
    return validated(
        memory_mb=256, display_name="old", secret_env={"S": SecretDraft("1")}, timeout=timedelta(seconds=9)
    )


def test_a_mask_takes_only_what_it_names() -> None:
    draft = merged(current(), replace(DRAFT, display_name="new", memory_mb=512), frozenset({"display_name"}))

    assert (draft.display_name, draft.memory_mb, draft.timeout) == ("new", 256, timedelta(seconds=9))
    assert draft.secret_env == {"S": SecretDraft(digest="digest of 1")}


@pytest.mark.parametrize("mask", [frozenset[str](), frozenset({"*"})])
def test_no_mask_replaces_all(mask: frozenset[str]) -> None:
    assert merged(current(), DRAFT, mask) == DRAFT


def test_a_masked_field_that_is_empty_gets_its_default() -> None:
    draft = merged(current(), DRAFT, frozenset({"memory_mb", "timeout"}))
    made = validation.configuration(
        draft,
        Kind.FUNCTION,
        stored=current().secret_env,
        store_secret=lambda _name, _draft: Secret("d", "k", bytes(28)),
    )

    assert (made.memory_mb, made.timeout) == (128, timedelta(seconds=30))


@pytest.mark.parametrize("path", ["uid", "name", "kind", "phase", "nonsense", "replicas.min"])
def test_a_mask_cannot_name_what_cannot_be_changed(path: str) -> None:
    with pytest.raises(InvalidField, match=f"update_mask names '{path}', which can't be changed") as refused:
        merged(current(), DRAFT, frozenset({path, *MUTABLE_FIELDS}))
    assert refused.value.field == "update_mask"
