"""Pauses between tries."""

from __future__ import annotations

import itertools
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from sless_platform.backoff import Backoff


def test_pauses_grow_by_the_factor_up_to_the_maximum() -> None:
    backoff = Backoff(timedelta(seconds=1), timedelta(seconds=5), factor=2, jitter=0)
    pauses = [pause.total_seconds() for pause in itertools.islice(backoff.delays(), 5)]
    assert pauses == [1, 2, 4, 5, 5]


@given(jitter=st.floats(0, 1), uniform=st.floats(0, 1))
def test_chance_only_shortens_and_never_below_its_share(jitter: float, uniform: float) -> None:
    backoff = Backoff(timedelta(seconds=1), timedelta(seconds=8), jitter=jitter)
    for pause, whole in zip(backoff.delays(lambda: uniform), (1, 2, 4, 8, 8), strict=False):
        assert whole * (1 - jitter) - 1e-5 <= pause.total_seconds() <= whole


def test_each_iterator_begins_anew() -> None:
    backoff = Backoff(timedelta(seconds=1), timedelta(seconds=9), jitter=0)
    assert next(backoff.delays()) == next(backoff.delays()) == timedelta(seconds=1)
