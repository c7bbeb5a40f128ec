"""If-Match."""

from __future__ import annotations

import pytest
from sless_gateway.application.conditions import ANY_STATE, Condition, if_match
from sless_gateway.errors import EtagMismatch
from sless_platform.errors import InvalidArgument


@pytest.mark.parametrize(
    ("values", "condition"),
    [
        ([], ANY_STATE),
        ([""], ANY_STATE),
        (["*"], Condition(any_existing=True)),
        ([" * "], Condition(any_existing=True)),
        (['"a-1"'], Condition(tags=("a-1",))),
        (['"a-1", "b-2"'], Condition(tags=("a-1", "b-2"))),
        (['"a-1"', '"b-2"'], Condition(tags=("a-1", "b-2"))),
        (['"a,b" ,"c"'], Condition(tags=("a,b", "c"))),
        (['W/"a-1"'], Condition(tags=('W/"a-1"',))),
    ],
)
def test_if_match_is_read(values: list[str], condition: Condition) -> None:
    assert if_match(values) == condition


@pytest.mark.parametrize("text", ["a-1", '"a', '"a" "b"', '*, "a"', "'a'", '"a";"b"'])
def test_what_is_no_list_of_entity_tags_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="If-Match must be"):
        if_match([text])


@pytest.mark.parametrize("condition", [ANY_STATE, Condition(any_existing=True), Condition(tags=("x", "now"))])
def test_a_condition_holds_for_the_state_that_was_meant(condition: Condition) -> None:
    condition.check("now")


@pytest.mark.parametrize("tag", ["before", "", "*", 'W/"now"'])
def test_a_condition_fails_for_every_other_state(tag: str) -> None:
    with pytest.raises(EtagMismatch):
        Condition(tags=(tag,)).check("now")


@pytest.mark.parametrize("text", ['""', '"*"'])
def test_a_tag_never_means_any_state(text: str) -> None:
    assert if_match([text]).single is None


def test_no_state_of_what_is_to_be_created_can_be_meant() -> None:
    ANY_STATE.check_absent()
    with pytest.raises(EtagMismatch):
        if_match(['"a-1"']).check_absent()
