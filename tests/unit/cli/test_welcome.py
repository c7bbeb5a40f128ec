"""What `sless up` says of tokens."""

from __future__ import annotations

import pytest
from sless_cli.embedded.front import Ready
from sless_cli.welcome import welcome


def said(capsys: pytest.CaptureFixture[str], token: str) -> str:
    ready = Ready("http://127.0.0.1:9090", "/data", 1.5, token)
    assert welcome(ready, None, took=lambda: 1.5, stop="Ctrl-C stops it") == 0
    return capsys.readouterr().out


def test_a_token_of_the_platforms_own_issuer_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLESS_API_TOKEN", raising=False)

    assert "token     made-here\n" in said(capsys, "made-here")


@pytest.mark.parametrize("token", ["", "of-the-cloud"])
def test_a_token_of_another_issuer_is_the_users_and_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("SLESS_API_TOKEN", token)

    out = said(capsys, token)

    assert "token     of your issuer, in SLESS_API_TOKEN\n" in out
    assert "of-the-cloud" not in out
