"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import RunCli, cli_runner
from tests.support.fake_gateway import Fake, running_gateway


@pytest.fixture
def fake() -> Fake:
    """What the fake gateway knows."""
    return Fake()


@pytest.fixture
def endpoint(fake: Fake) -> Iterator[str]:
    """The fake gateway's URL."""
    with running_gateway(fake) as url:
        yield url


@pytest.fixture
def sless(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, endpoint: str) -> RunCli:
    """Runs a command line against the fake gateway, as user ada."""
    return cli_runner(monkeypatch, capsys, tmp_path, endpoint)


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    """A folder with a small handler."""
    folder = tmp_path / "hello"
    folder.mkdir()
    (folder / "handler.py").write_text("def handle(event):\n    return event\n")
    return folder
