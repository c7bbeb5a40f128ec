"""The command line as a whole: help, completion, and what is loaded for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from sless_cli.main import COMMANDS, sless

from tests.support.cli import RunCli
from tests.support.fake_gateway import Fake

HEAVY = ("grpc", "aiohttp", "httpx", "asyncpg", "pathspec", "rich", "jwt")


def python(*arguments: str, environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **(environ or {})}, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_table_of_commands_says_what_each_says_of_itself(name: str) -> None:
    command = sless.get_command(click.Context(sless), name)

    assert command is not None
    assert command.name == name
    assert (command.help or "").replace(";", ".").startswith(COMMANDS[name].removesuffix(".").partition(";")[0])


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from sless_cli.main import run; run(['--help']); print('LOADED', *sys.modules)"
    out = python("-c", code)
    loaded = out.partition("LOADED")[2].split()

    assert "Commands:" in out
    assert all(name in out for name in COMMANDS)
    assert [name for name in HEAVY if name in loaded] == []


def test_versions_say_which(sless: RunCli) -> None:
    assert sless("--version").out.startswith("sless, version ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_and_valid(shell: str, sless: RunCli, tmp_path: Path) -> None:
    ran = sless("completion", shell)

    assert ran.code == 0
    assert "_SLESS_COMPLETE" in ran.out
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(ran.out)
        subprocess.run([shell, "-n", script], check=True)


def completed(line: str, home: Path, **environ: str) -> list[str]:
    """What bash would offer for the last word of the line."""
    words = line.split(" ")
    variables = {"_SLESS_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    out = python("-m", "sless_cli", environ={"HOME": str(home), "XDG_CONFIG_HOME": "", **variables, **environ})
    return [entry.partition(",")[2] for entry in out.splitlines() if entry]


def test_commands_and_options_are_completed(tmp_path: Path) -> None:
    assert completed("sless ro", tmp_path) == ["rollback"]
    assert set(completed("sless ", tmp_path)) >= set(COMMANDS)
    assert completed("sless activate --no-w", tmp_path) == ["--no-wait"]
    assert completed("sless service ge", tmp_path) == ["get"]


def test_names_are_completed_where_a_platform_is_known(
    sless: RunCli, fake: Fake, hello: Path, endpoint: str, tmp_path: Path
) -> None:
    sless("deploy", str(hello))
    sless("deploy", str(hello), "--name", "help-desk", "--private")
    known = {"SLESS_ENDPOINT": endpoint, "SLESS_API_TOKEN": "ada"}

    assert completed("sless invoke he", tmp_path, **known) == ["hello", "help-desk"]
    assert completed("sless service get he", tmp_path, **known) == ["hello"]
    assert completed("sless rollback x", tmp_path, **known) == []


@pytest.mark.parametrize("token", ["refused", ""])
def test_completion_is_silent_about_faults(token: str, tmp_path: Path, endpoint: str) -> None:
    assert completed("sless invoke he", tmp_path) == []
    assert completed("sless invoke he", tmp_path, SLESS_ENDPOINT=endpoint, SLESS_API_TOKEN=token) == []
    assert completed("sless invoke he", tmp_path, SLESS_ENDPOINT="http://127.0.0.1:1", SLESS_API_TOKEN="t") == []
