"""Ids of calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sless_calls.ids import invocation_id, new_invocation_id

AT = datetime(2026, 11, 30, tzinfo=UTC)


def test_an_invocation_id_is_a_ulid() -> None:
    # The specification's own example of a timestamp: github.com/ulid/spec.
    example = datetime.fromtimestamp(1469918176.385, UTC)

    assert invocation_id(example, 0) == "01ARYZ6S41" + "0" * 16
    assert invocation_id(example, 2**80 - 1) == "01ARYZ6S41" + "Z" * 16


def test_invocation_ids_are_in_the_order_of_time() -> None:
    made = [invocation_id(AT + timedelta(milliseconds=number), 2**80 - 1 - number) for number in range(100)]

    assert made == sorted(made)


def test_two_invocation_ids_of_one_moment_differ() -> None:
    assert new_invocation_id(AT) != new_invocation_id(AT)
