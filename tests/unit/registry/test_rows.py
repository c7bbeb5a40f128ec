"""Rows that were written by the release before."""

from __future__ import annotations

from dataclasses import replace

from sless_registry.adapters.postgres import rows
from sless_registry.ports import Answer, RequestKey, StoredAnswer

from tests.support.registry_domain import NOW, serving

KEY = RequestKey("sub", "CreateFunction", "0199e325-1cdf-7cda-9319-e5302a85e291")


def test_an_answer_that_was_stored_by_a_release_before_is_given_again() -> None:
    record = serving()
    record = record.with_function(replace(record.function, served=None))
    stored = StoredAnswer(KEY, b"print", Answer(record.function, record.versions[0]), 7, NOW)
    row = rows.answer_row(stored)
    del row["answer"]["function"]["traceparent"], row["answer"]["version"]["traceparent"]
    del row["answer"]["function"]["served"]

    again = rows.stored_answer(KEY, {**row, "fingerprint": b"print", "revision": 7, "created_at": NOW})

    assert again == stored
