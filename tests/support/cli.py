"""Running `sless` inside a test, against an endpoint of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sless_cli import main


@dataclass(frozen=True)
class Ran:
    """One command line: its exit code and what it wrote."""

    code: int
    out: str
    err: str


RunCli = Callable[..., Ran]


def cli_runner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path, endpoint: str, token: str = "ada"
) -> RunCli:
    """A function that runs a command line: `run("invoke", "hello")`. HOME is a folder of the test's."""
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SLESS_ENDPOINT", endpoint)
    monkeypatch.setenv("SLESS_API_TOKEN", token)
    monkeypatch.setattr("sless_cli.api.DELAYS_SEC", (0.0, 0.0))

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main.run(arguments)
        written = capsys.readouterr()
        return Ran(code, written.out, written.err)

    return run
