"""The parts of `sless dev` that need no process."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest
from sless_cli.dev.dependencies import wanted_by
from sless_cli.dev.program import program_of
from sless_cli.dev.watching import Watch
from sless_cli.errors import CliError, UsageFault
from sless_cli.planning import Wishes
from sless_contracts.limits import Limit

PYTHON = Path("/usr/bin/python3.11")


async def changed(watch: Watch) -> list[str]:
    async with asyncio.timeout(10):
        return await watch.changed()


def save(path: Path, text: str) -> None:
    """As editors do: another file takes the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.rename(path)


async def test_saved_new_and_removed_files_are_told(hello: Path) -> None:
    watch = Watch(hello)

    save(hello / "handler.py", "# other\n")
    save(hello / "lib" / "deep" / "more.py", "")
    assert await changed(watch) == ["handler.py", "lib/deep/more.py"]
    (hello / "handler.py").unlink()
    assert await changed(watch) == ["handler.py"]


async def test_a_save_with_the_same_size_and_time_is_told(hello: Path) -> None:
    state = (hello / "handler.py").stat()
    watch = Watch(hello)

    save(hello / "handler.py", (hello / "handler.py").read_text().replace("event", "tneve"))
    os.utime(hello / "handler.py", ns=(state.st_mtime_ns, state.st_mtime_ns))

    assert await changed(watch) == ["handler.py"]


async def test_a_change_before_the_question_is_told(hello: Path) -> None:
    watch = Watch(hello)
    save(hello / "a.py", "")
    first = asyncio.create_task(watch.changed())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    assert await changed(watch) == ["a.py"]


async def test_what_is_ignored_is_not_told(hello: Path) -> None:
    (hello / ".gitignore").write_text("*.log\n/data/\n")
    watch = Watch(hello)

    for name in ("noise.log", "data/x.py", ".git/HEAD", "__pycache__/handler.pyc"):
        save(hello / name, "x")
    save(hello / "handler.py", "# new\n")
    assert await changed(watch) == ["handler.py"]

    save(hello / ".gitignore", "")
    assert ".gitignore" in await changed(watch)
    save(hello / "noise.log", "y")
    assert "noise.log" in await changed(watch)


async def test_a_folder_that_goes_away_is_said(hello: Path) -> None:
    watch = Watch(hello)
    (hello / "handler.py").unlink()
    hello.rmdir()

    with pytest.raises(UsageFault, match="is gone"):
        await changed(watch)


def test_too_many_files_are_refused(hello: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sless_cli.dev.watching.ARCHIVE_FILES", Limit(2, "files", ""))
    for number in range(3):
        (hello / f"{number}.py").write_text("")

    with pytest.raises(UsageFault, match="more than 2 files"):
        Watch(hello)


def test_a_program_is_what_deploy_would_make_of_the_folder(hello: Path) -> None:
    program = program_of(hello, Wishes())
    assert (program.name, program.entrypoint, program.timeout) == ("hello", "handler.handle", None)
    assert (program.concurrency, program.memory_mb) == (64, 128)

    (hello / "sless.toml").write_text(
        'kind = "function"\nmemory_mb = 256\nreplicas = {concurrency = 3}\n[env_vars]\nA = "1"\nB = "1"\n'
        '[secret_env]\nS = "s"\n'
    )
    program = program_of(hello, Wishes(fields={"entrypoint": "handler.other"}, env_vars={"B": "2"}))
    assert (program.entrypoint, program.timeout) == ("handler.other", timedelta(seconds=30))
    assert (program.concurrency, program.memory_mb) == (3, 256)
    assert program.variables == {"A": "1", "B": "2", "S": "s"}
    assert "'s'" not in repr(program)


@pytest.mark.parametrize(
    ("text", "said"),
    [('runtime = "nodejs20"', "runs python3.11 alone"), ("env_vars = {A = 1}", "a table of strings"), ("x = 1", "x")],
)
def test_what_cannot_be_run_is_said(text: str, said: str, hello: Path) -> None:
    (hello / "sless.toml").write_text(text)

    with pytest.raises(UsageFault, match=said):
        program_of(hello, Wishes())


@pytest.mark.parametrize("text", ["", "# flask\n\n", "--index-url https://x\n", "   # x\n"])
def test_requirements_that_ask_for_nothing_install_nothing(text: str, hello: Path) -> None:
    (hello / "requirements.txt").write_text(text)

    assert wanted_by(hello, PYTHON) is None


def test_the_same_requirements_are_the_same_dependencies(hello: Path) -> None:
    (hello / "requirements.txt").write_text("-r more/base.txt\n")
    (hello / "more").mkdir()
    (hello / "more" / "base.txt").write_text("flask\n-r ../requirements.txt\n")
    first = wanted_by(hello, PYTHON)
    assert first is not None

    assert wanted_by(hello, PYTHON) == first
    (hello / "more" / "base.txt").write_text("django\n")
    second = wanted_by(hello, PYTHON)
    assert second is not None
    assert len({first.digest, second.digest, getattr(wanted_by(hello, Path("/opt/python")), "digest", "")}) == 3


def test_a_project_is_asked_when_there_are_no_requirements(hello: Path) -> None:
    (hello / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert wanted_by(hello, PYTHON) is None
    (hello / "pyproject.toml").write_text("[project]\nname = 'x'\nversion = '1'\ndependencies = ['flask']\n")
    assert getattr(wanted_by(hello, PYTHON), "file", None) == hello / "pyproject.toml"
    (hello / "requirements.txt").write_text("# nothing\n")
    assert wanted_by(hello, PYTHON) is None


@pytest.mark.parametrize(("name", "text"), [("pyproject.toml", "a = = 1"), ("requirements.txt", "-r nowhere.txt")])
def test_what_cannot_be_read_is_said(name: str, text: str, hello: Path) -> None:
    (hello / name).write_text(text)

    with pytest.raises(CliError, match="cannot be read"):
        wanted_by(hello, PYTHON)
