"""Which Python is found, and what of it a sandbox shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from sless_runtime_manager.adapters.local.interpreters import Interpreter, find_python311, inspect

REAL = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def python_of(version: str, folder: Path) -> str:
    """A program that answers as a Python of that version would."""
    return (
        f'echo \'{{"version": [{version.replace(".", ", ")}], "executable": "{folder}/bin/real",'
        f' "prefixes": ["{folder}"]}}\''
    )


def test_the_interpreter_of_a_virtual_environment_is_its_base() -> None:
    found = inspect(Path(sys.executable))
    assert found is not None
    assert found.executable == REAL
    assert found.version == sys.version_info[:2]


def test_a_shim_leads_to_the_real_interpreter(tmp_path: Path) -> None:
    shim = script(tmp_path / "shims" / "python3.11", f'exec {sys.executable} "$@"')
    found = inspect(shim)
    assert found is not None
    assert found.executable == REAL


@pytest.mark.parametrize("text", ["exit 1", "echo nonsense", "echo '{}'", "kill -9 $$"])
def test_what_does_not_answer_is_no_python(tmp_path: Path, text: str) -> None:
    assert inspect(script(tmp_path / "python3.11", text)) is None


def test_the_first_python_311_of_the_path_is_taken(tmp_path: Path) -> None:
    script(tmp_path / "a" / "python3.11", "exit 1")
    script(tmp_path / "b" / "python3.11", python_of("3.10", tmp_path / "b"))
    script(tmp_path / "c" / "python3.11", python_of("3.11", tmp_path / "c"))
    folders = [tmp_path / name for name in ("a", "b", "c")]
    found, looked_at = find_python311({"PATH": os.pathsep.join(map(str, folders))})
    assert found == tmp_path / "c" / "bin" / "real"
    assert looked_at == [str(folder / "python3.11") for folder in folders]


def test_pyenvs_newest_is_found_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("3.11.2", "3.11.9", "3.12.1"):
        folder = tmp_path / ".pyenv" / "versions" / version
        script(folder / "bin" / "python3.11", python_of(version.rpartition(".")[0], folder))
    monkeypatch.setattr("sless_runtime_manager.adapters.local.interpreters.inspect", only_below(tmp_path))
    found, looked_at = find_python311({"PATH": "/nowhere", "HOME": str(tmp_path)})
    assert found == tmp_path / ".pyenv/versions/3.11.9/bin/real"
    assert {"/nowhere/python3.11", "/usr/bin/python3.11", "/usr/local/bin/python3.11"} <= set(looked_at)


def test_a_folder_of_the_path_that_may_not_be_entered_is_passed_by(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    script(closed / "python3.11", "exit 1")
    script(tmp_path / "open" / "python3.11", python_of("3.11", tmp_path))
    looping = tmp_path / "looping"
    looping.symlink_to(looping)
    closed.chmod(0)
    found, _ = find_python311({"PATH": f"{closed}:{looping}:{tmp_path / 'open'}"})
    closed.chmod(0o700)
    assert found == tmp_path / "bin" / "real"


def test_without_one_the_places_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sless_runtime_manager.adapters.local.interpreters.inspect", only_below(tmp_path))
    found, looked_at = find_python311({"PATH": "/a:/b:relative", "HOME": str(tmp_path)})
    assert found is None
    assert looked_at[:2] == ["/a/python3.11", "/b/python3.11"]
    assert len(looked_at) == len(set(looked_at))


def only_below(folder: Path):  # type: ignore[no-untyped-def]
    return lambda candidate: inspect(candidate) if candidate.is_relative_to(folder) else None


def interpreter(*prefixes: str) -> Interpreter:
    return Interpreter(Path("/x/bin/python3.11"), (3, 11), tuple(map(Path, prefixes)))


def test_the_systems_python_needs_nothing_shown() -> None:
    assert interpreter("/usr").exposed([]) == []


def test_a_prefix_of_its_own_is_shown_whole() -> None:
    home, data = Path("/home/u"), Path("/home/u/.local/share/sless")
    assert interpreter("/home/u/.pyenv/versions/3.11.7").exposed([home, data]) == ["/home/u/.pyenv/versions/3.11.7"]


def test_a_prefix_that_holds_private_folders_is_shown_in_part(tmp_path: Path) -> None:
    for name in ("bin", "lib", "data"):
        (tmp_path / name).mkdir()
    assert interpreter(str(tmp_path)).exposed([tmp_path / "data"]) == [str(tmp_path / "bin"), str(tmp_path / "lib")]
    assert interpreter(str(tmp_path)).exposed([tmp_path]) == [str(tmp_path / "bin"), str(tmp_path / "lib")]
