"""RFC 9110 §7.6.1: which fields pass an intermediary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sless_calls.headers import HOP_BY_HOP, end_to_end, request_headers, response_headers

from tests.support.patience import PATIENT

NAMES = st.one_of(
    st.sampled_from(sorted(HOP_BY_HOP)),
    st.sampled_from(["Set-Cookie", "x-a", "X-B", "Host", "Content-Length", "Content-Type", "Expect"]),
).flatmap(lambda name: st.sampled_from([name, name.upper(), name.title()]))
OPTIONS = st.lists(st.sampled_from(["close", "x-a", "X-B", " keep-alive ", "", "host"]), max_size=3).map(",".join)
FIELDS = st.lists(st.tuples(NAMES, OPTIONS), max_size=12)


@PATIENT
@given(fields=FIELDS)
def test_no_field_of_one_hop_passes_and_all_others_do_in_their_order(fields: list[tuple[str, str]]) -> None:
    listed = {
        option.strip().lower() for name, value in fields if name.lower() == "connection" for option in value.split(",")
    }
    expected = [field for field in fields if field[0].lower() not in HOP_BY_HOP | listed]
    assert end_to_end(fields) == expected


@PATIENT
@given(fields=FIELDS)
def test_passing_twice_changes_nothing_more(fields: list[tuple[str, str]]) -> None:
    once = end_to_end(fields)
    assert end_to_end(once) == once
    assert response_headers(response_headers(fields)) == response_headers(fields)


@pytest.mark.fault(20)
def test_duplicates_are_kept_and_what_connection_lists_is_not() -> None:
    fields = [
        ("Set-Cookie", "a=1"),
        ("Connection", "close, X-Trace"),
        ("x-trace", "1"),
        ("Set-Cookie", "b=2"),
        ("Connection", "x-other"),
        ("X-Other", "2"),
        ("Keep-Alive", "timeout=5"),
        ("Transfer-Encoding", "chunked"),
        ("Trailer", "X-T"),
        ("Proxy-Authorization", "Basic eA=="),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
    ]
    assert end_to_end(fields) == [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]


def test_each_direction_leaves_out_what_its_server_does_itself() -> None:
    fields = [("Expect", "100-continue"), ("Content-Length", "3"), ("Host", "h"), ("Authorization", "Bearer t")]
    assert [name for name, _ in request_headers(fields)] == ["Content-Length", "Host", "Authorization"]
    assert [name for name, _ in response_headers(fields)] == ["Expect", "Host", "Authorization"]
