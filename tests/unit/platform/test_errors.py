"""Typed errors."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest
from sless_platform import errors
from sless_platform.errors import Kind, NotFound, PlatformError, class_of


class WidgetNotFound(NotFound):
    reason = "WIDGET_NOT_FOUND"


class AnyWidgetNotFound(WidgetNotFound):
    pass


def test_an_error_is_its_sentence() -> None:
    error = NotFound("there is no widget 'w'")
    assert str(error) == error.message == "there is no widget 'w'"
    assert (error.field, error.retry_after, error.metadata) == (None, None, {})


@pytest.mark.parametrize("kind", Kind)
def test_the_reason_is_the_kind_unless_a_subclass_has_its_own(kind: Kind) -> None:
    assert class_of(kind)("x").reason == kind.value


def test_a_subclass_keeps_its_parents_reason_and_kind() -> None:
    assert (AnyWidgetNotFound("x").reason, AnyWidgetNotFound("x").kind) == ("WIDGET_NOT_FOUND", Kind.NOT_FOUND)


def test_a_reason_given_is_this_errors_alone() -> None:
    assert NotFound("x", reason="OTHER").reason == "OTHER"
    assert NotFound("x").reason == "NOT_FOUND"


def test_metadata_is_a_copy() -> None:
    facts = {"a": "b"}
    error = NotFound("x", metadata=facts)
    facts["a"] = "changed"
    assert error.metadata == {"a": "b"}


def test_every_kind_has_one_class_of_its_name() -> None:
    for kind in Kind:
        name = "".join(word.capitalize() for word in kind.value.split("_"))
        assert class_of(kind) is getattr(errors, name)
        assert issubclass(class_of(kind), PlatformError)


def test_an_error_survives_another_process() -> None:
    error = WidgetNotFound("gone", field="f", retry_after=timedelta(seconds=1), metadata={"a": "b"}, reason="R")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is WidgetNotFound
    assert (copy.message, copy.field, copy.retry_after, copy.metadata, copy.reason) == (
        error.message,
        error.field,
        error.retry_after,
        error.metadata,
        error.reason,
    )
