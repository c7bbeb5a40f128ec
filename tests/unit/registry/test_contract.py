"""The domain and the API's contract say the same."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from sless.registry.v1 import registry_pb2 as pb
from sless_contracts import catalog, limits
from sless_platform.errors import PlatformError
from sless_registry import errors
from sless_registry.application import paging
from sless_registry.application.watching import Batch
from sless_registry.domain.drafts import MUTABLE_FIELDS
from sless_registry.domain.resources import (
    Access,
    BuildError,
    Function,
    Kind,
    Phase,
    Secret,
    Version,
    VersionState,
)
from sless_registry.grpc_api import convert, requests

from tests.support.registry_domain import at, serving, uploaded


def test_every_reason_of_the_api_has_its_error() -> None:
    raised = {
        error.reason
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, PlatformError) and error.__module__ == errors.__name__
    }
    declared = {name.removeprefix("ERROR_REASON_") for name in pb.ErrorReason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118

    assert raised == declared


@pytest.mark.parametrize(
    ("enum", "numbers", "message"),
    [
        (Kind, convert.KINDS, pb.FunctionKind),
        (Access, convert.ACCESSES, pb.Access),
        (Phase, convert.PHASES, pb.Phase),
        (VersionState, convert.STATES, pb.VersionState),
    ],
)
def test_every_value_of_an_enum_has_its_number(enum: type, numbers: dict[object, int], message: object) -> None:
    names = {name.rpartition("_")[2] for name in message.keys()} - {"UNSPECIFIED"}  # type: ignore[attr-defined]  # noqa: SIM118

    assert set(numbers) == set(enum)  # type: ignore[call-overload]
    assert {value.name for value in enum} == names  # type: ignore[attr-defined]
    assert len(set(numbers.values())) == len(numbers)


def test_what_an_update_may_change_are_fields_of_the_message() -> None:
    assert set(MUTABLE_FIELDS) <= {field.name for field in pb.Function.DESCRIPTOR.fields}


def full_function() -> Function:
    """A function none of whose fields is empty."""
    record = serving(
        display_name="Hello",
        description="text",
        env_vars={"A": "1"},
        secret_env={"S": Secret("d" * 64, "key", bytes(30))},
        labels={"a": "b"},
        idempotent=True,
    )
    return dataclasses.replace(
        record.function,
        message="m",
        image_ref="image",
        last_built_at=at(1),
        deleted_at=at(2),
        traceparent="t",
        revision=9,
    )


def full_version() -> Version:
    """A version none of whose fields is empty."""
    error = BuildError("SYNTAX_ERROR", "invalid", "handler.py", 3, "package")
    version = serving().versions[0]
    return dataclasses.replace(version, image_ref="image", error=error, cached=True, traceparent="t", revision=9)


def test_every_field_of_a_function_is_told() -> None:
    told = {field.name for field, _ in convert.to_function(full_function()).ListFields()}

    assert told == {field.name for field in pb.Function.DESCRIPTOR.fields}


def test_every_field_of_a_version_is_told() -> None:
    message = convert.to_version(full_version())

    assert {field.name for field, _ in message.ListFields()} == {f.name for f in pb.Version.DESCRIPTOR.fields}
    assert {field.name for field, _ in message.error.ListFields()} == {f.name for f in pb.BuildError.DESCRIPTOR.fields}


def test_a_read_function_can_be_written_again_as_it_is() -> None:
    function = full_function()

    draft = requests.draft(convert.to_function(function))

    for name in set(MUTABLE_FIELDS) - {"secret_env"}:
        assert getattr(draft, name) == getattr(function.configuration, name)
    assert {name: secret.digest for name, secret in draft.secret_env.items()} == {"S": "d" * 64}


@pytest.mark.fault(34)
def test_ranges_in_the_protos_comments_are_the_catalogues() -> None:
    from pathlib import Path

    text = (Path(__file__).parents[3] / "proto/sless/registry/v1/registry.proto").read_text()

    for sentence in (
        f"Memory of one instance in MiB, {catalog.MEMORY_MB.low} to {catalog.MEMORY_MB.high}.",
        f"How long a call may take, {catalog.TIMEOUT_SEC.low} to {catalog.TIMEOUT_SEC.high} s.",
        f"The fewest instances, {catalog.REPLICAS.low} to {catalog.REPLICAS.high}.",
        f"The most instances, {catalog.REPLICAS.low} to {catalog.REPLICAS.high};",
        f"Calls at once in one instance, {catalog.CONCURRENCY.low} to {catalog.CONCURRENCY.high:,}.",
        f"A name for people, at most {limits.DISPLAY_NAME_CHARS.value} characters.",
        f"A text for people, at most {limits.DESCRIPTION_CHARS.value:,} characters.",
        f"A DNS-1123 label of at most {limits.NAME_CHARS.value} characters",
        f"1 to {paging.MAX_PAGE_SIZE:,}; 0 for {paging.DEFAULT_PAGE_SIZE}.",
        f"How long to wait, at most {limits.WAIT_SEC.value // 60} minutes.",
    ):
        assert sentence in text


def test_a_batch_is_told_whole_and_in_order_whatever_its_size() -> None:
    big = dataclasses.replace(serving().function, message="x" * 400_000)
    changed = tuple(dataclasses.replace(big, uid=str(n), revision=n) for n in range(6))

    told = list(convert.to_responses(Batch(9, changed, ("gone",), before=3, reset=True)))

    assert [len(each.changes) for each in told] == [2, 2, 3]
    assert [each.revision for each in told] == [3, 3, 9]
    assert [each.reset for each in told] == [True, False, False]
    assert [each.more for each in told] == [True, True, False]
    names = [change.function.uid or change.purged_function_uid for each in told for change in each.changes]
    assert names == ["0", "1", "2", "3", "4", "5", "gone"]


def test_one_resource_that_is_larger_than_a_message_should_be_is_told_alone() -> None:
    big = dataclasses.replace(serving().function, message="x" * 1_500_000)

    told = list(convert.to_responses(Batch(9, (big, big))))

    assert [len(each.changes) for each in told] == [1, 1]


def test_weights_are_about_what_messages_weigh() -> None:
    function, version = full_function(), full_version()
    long = dataclasses.replace(function, message="é" * 10_000)

    for weight, message in (
        (paging.function_weight(function), convert.to_function(function)),
        (paging.function_weight(long), convert.to_function(long)),
        (paging.version_weight(version), convert.to_version(version)),
    ):
        assert message.ByteSize() <= weight <= message.ByteSize() + 1_024


def test_a_functions_time_limit_is_told_and_no_limit_is_absent() -> None:
    function = full_function()
    limited = convert.to_function(function)
    free = dataclasses.replace(function.configuration, timeout=None)

    assert limited.timeout.ToTimedelta() == timedelta(seconds=30)
    assert not convert.to_function(dataclasses.replace(function, configuration=free)).HasField("timeout")


def test_a_version_of_a_new_upload_says_so() -> None:
    message = convert.to_version(uploaded(serving(), "b").versions[1])

    assert (message.state, message.active, message.activate) == (pb.VERSION_STATE_PENDING, False, True)
    assert not message.HasField("error")
