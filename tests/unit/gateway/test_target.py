"""Request targets."""

from __future__ import annotations

import pytest
from sless_gateway.domain import invocation_id
from sless_gateway.http_api.exchange import Target
from sless_platform.errors import InvalidArgument


@pytest.mark.parametrize(
    ("raw", "path", "query"),
    [
        ("/a", "/a", ""),
        ("/a?", "/a", ""),
        ("/a?b=1&b=2", "/a", "b=1&b=2"),
        ("/a?b?c", "/a", "b?c"),
        ("/%2e%2e/a//b/./..?%41", "/%2e%2e/a//b/./..", "%41"),
        ("//a/b", "//a/b", ""),
        ("/ä?ö", "/ä", "ö"),
        ("http://h/a?b", "/a", "b"),
        ("HTTPS://h:1/a", "/a", ""),
        ("http://h", "/", ""),
        ("http://h?b", "/", "b"),
        ("*", "*", ""),
        ("h:443", "h:443", ""),
        ("ftp://h/a", "ftp://h/a", ""),
    ],
)
def test_a_target_is_taken_as_it_came(raw: str, path: str, query: str) -> None:
    assert Target.of(raw) == Target(path, query)


@pytest.mark.parametrize("raw", ["/a#b", "/a?b#c", "/\udcff"])
def test_what_no_client_should_send_is_refused(raw: str) -> None:
    with pytest.raises(InvalidArgument):
        Target.of(raw)


def test_invocation_ids_are_ulids_in_the_order_of_time() -> None:
    # The specification's own example of a timestamp: github.com/ulid/spec.
    assert invocation_id(1469918176385, 0)[:10] == "01ARYZ6S41"
    made = [invocation_id(ms, 2**80 - 1 - ms) for ms in range(1_700_000_000_000, 1_700_000_000_100)]
    assert made == sorted(made)
    assert {len(one) for one in made} == {26}
