"""Request targets."""

from __future__ import annotations

import pytest
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
