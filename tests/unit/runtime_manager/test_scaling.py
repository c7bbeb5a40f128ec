from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sless_runtime_manager.domain import Limits
from sless_runtime_manager.scaling import UNKNOWN_SOURCE, Demand, Policy, Sample, desired, next_change

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
POLICY = Policy(idle=timedelta(seconds=300), window=timedelta(seconds=60))
LIMITS = Limits(least=0, most=10, concurrency=16)


def seen(seconds_ago: float, concurrency: int, source: str = "invoker") -> Sample:
    return Sample(NOW - timedelta(seconds=seconds_ago), source, concurrency)


@pytest.mark.parametrize(("concurrency", "instances"), [(1, 1), (16, 1), (17, 2), (50, 4), (160, 10), (100_000, 10)])
def test_instances_are_as_many_as_the_calls_need_up_to_the_most(concurrency: int, instances: int) -> None:
    assert desired(LIMITS, [seen(0, concurrency)], NOW, POLICY) == instances


def test_without_calls_the_least_is_kept() -> None:
    limits = Limits(least=2, most=10, concurrency=16)
    assert desired(limits, [], NOW, POLICY) == 2
    assert desired(limits, [seen(300, 100)], NOW, POLICY) == 2


def test_one_instance_stays_until_the_idle_time_is_over() -> None:
    assert desired(LIMITS, [seen(299.9, 100)], NOW, POLICY) == 1
    assert desired(LIMITS, [seen(300, 100)], NOW, POLICY) == 0


def test_scaling_down_waits_until_the_whole_window_agrees() -> None:
    assert desired(LIMITS, [seen(59, 100), seen(0, 1)], NOW, POLICY) == 7
    assert desired(LIMITS, [seen(60, 100), seen(0, 1)], NOW, POLICY) == 1


def test_a_function_that_is_switched_off_has_no_instance_whatever_is_asked() -> None:
    assert desired(Limits(least=0, most=0, concurrency=16), [seen(0, 100)], NOW, POLICY) == 0


def test_a_least_above_the_most_does_not_lift_the_bound() -> None:
    assert desired(Limits(least=5, most=2, concurrency=16), [], NOW, POLICY) == 2


def test_watchers_see_different_calls_but_whoever_asks_for_instances_may_see_the_same() -> None:
    assert desired(LIMITS, [seen(0, 16, "watcher-1"), seen(0, 16, "watcher-2")], NOW, POLICY) == 2
    assert desired(LIMITS, [seen(0, 32, UNKNOWN_SOURCE), seen(0, 32, "watcher-1")], NOW, POLICY) == 2


def test_the_next_change_is_when_the_peak_leaves_the_window_then_when_idle_time_is_over() -> None:
    samples = [seen(10, 100), seen(0, 1)]
    first = next_change(LIMITS, samples, NOW, POLICY)
    assert first == NOW + timedelta(seconds=50)
    assert next_change(LIMITS, samples, first, POLICY) == NOW + timedelta(seconds=300)


def test_nothing_changes_by_itself_where_the_least_is_all_that_is_wanted() -> None:
    limits = Limits(least=1, most=1, concurrency=64)
    assert next_change(limits, [seen(0, 10)], NOW, POLICY) is None


def test_demand_keeps_few_samples_however_often_it_is_told() -> None:
    demand = Demand(POLICY)
    for second in range(1_000):
        demand.note("watcher-1", 1 + second % 7, NOW + timedelta(seconds=second))
    assert len(demand.samples) <= 8


def test_demand_remembers_the_last_activity_beyond_the_window() -> None:
    demand = Demand(POLICY)
    demand.note("watcher-1", 5, NOW)
    demand.note("watcher-2", 0, NOW + timedelta(seconds=200))
    assert demand.desired(LIMITS, NOW + timedelta(seconds=299)) == 1
    assert demand.desired(LIMITS, NOW + timedelta(seconds=300)) == 0


def test_simulation_of_a_day_with_a_rush() -> None:
    """Calls come in a rush, then singly, then not at all: instances follow up at once, down by the window, then to none."""
    demand = Demand(POLICY)
    trace = {}
    for second in range(1_200):
        now = NOW + timedelta(seconds=second)
        concurrency = 120 if 100 <= second < 160 else 1 if second < 600 else 0
        demand.note("watcher-1", concurrency, now)
        trace[second] = demand.desired(LIMITS, now)
    assert trace[99] == 1
    assert trace[100] == 8
    assert trace[215] == 8
    assert trace[230] == 1
    assert trace[898] == 1
    assert trace[899] == 0


limits = st.builds(
    lambda least, more, concurrency: Limits(least=least, most=least + more, concurrency=concurrency),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(1, 1_000),
)
samples = st.lists(
    st.builds(seen, st.floats(0, 1_000), st.integers(1, 10_000), st.sampled_from(["", "watcher-1", "watcher-2"])),
    max_size=20,
)


@given(limits, samples)
def test_desired_is_always_within_the_limits(bounds: Limits, told: list[Sample]) -> None:
    assert bounds.least <= desired(bounds, told, NOW, POLICY) <= bounds.most


@given(limits, samples)
def test_desired_stays_as_it_is_until_the_next_change(bounds: Limits, told: list[Sample]) -> None:
    current = desired(bounds, told, NOW, POLICY)
    change = next_change(bounds, told, NOW, POLICY)
    until = change if change is not None else NOW + timedelta(seconds=2_000)
    halfway = NOW + (until - NOW) / 2
    assert desired(bounds, told, halfway, POLICY) == current
    if change is not None:
        assert desired(bounds, told, change, POLICY) != current
