"""Fault points."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sless_platform import faults
from sless_platform.faults import FaultInjected, FaultPoints, fault_point


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.configure("")


def test_a_point_does_nothing_by_default() -> None:
    fault_point("store.after_commit")


def test_a_point_does_nothing_while_others_are_armed() -> None:
    faults.configure("store.before_commit=raise")
    fault_point("store.after_commit")


def test_a_point_raises_where_its_plan_says() -> None:
    faults.configure("a.b=kill@9, store.after_commit=raise")
    with pytest.raises(FaultInjected, match=r"store\.after_commit"):
        fault_point("store.after_commit")


def test_a_point_breaks_only_the_time_that_is_named() -> None:
    faults.configure("x=raise@2")
    fault_point("x")
    with pytest.raises(FaultInjected):
        fault_point("x")
    fault_point("x")


def test_an_empty_plan_disarms() -> None:
    faults.configure("x=raise")
    faults.configure(" ")
    fault_point("x")


@pytest.mark.parametrize("plan", ["x", "x=explode", "x=kill@0", "x=kill@", "=kill", "x y=kill", "x=kill;y=kill"])
def test_a_plan_that_cannot_be_read_is_refused_with_its_text(plan: str) -> None:
    with pytest.raises(ValueError, match="cannot be read") as raised:
        FaultPoints(plan)
    assert repr(plan) in str(raised.value)


def test_a_refused_plan_leaves_the_old_one() -> None:
    faults.configure("x=raise")
    with pytest.raises(ValueError, match="cannot be read"):
        faults.configure("nonsense")
    with pytest.raises(FaultInjected):
        fault_point("x")


def test_a_plan_knows_its_points() -> None:
    points = FaultPoints("a=kill,b.c=raise@2")
    assert "a" in points
    assert "b.c" in points
    assert "c" not in points
