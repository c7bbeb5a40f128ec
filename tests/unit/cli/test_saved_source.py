"""`sless source` against the fake gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.archives import zip_of
from tests.support.cli import RunCli
from tests.support.fake_gateway import Fake


@pytest.fixture
def two(sless: RunCli, fake: Fake, hello: Path) -> Fake:
    """The service hello with two versions."""
    (hello / "lib").mkdir()
    (hello / "lib" / "run.sh").write_text("#!/bin/sh\n")
    (hello / "lib" / "run.sh").chmod(0o755)
    for number in (1, 2):
        (hello / "more.py").write_text(f"N = {number}\n")
        assert sless("deploy", str(hello)).code == 0
    return fake


def test_source_is_shown(sless: RunCli, two: Fake) -> None:
    ran = sless("source", "hello")

    assert ran.code == 0
    assert ran.err == "version 2, entrypoint handler.handle\n"
    assert "==> more.py (6 bytes) <==\nN = 2\n" in ran.out
    assert "==> more.py (6 bytes) <==\nN = 1\n" in sless("source", "hello", "--version", "1").out
    told = json.loads(sless("source", "hello", "--output", "json").out)
    assert {file["path"] for file in told["files"]} == {"handler.py", "lib/run.sh", "more.py"}


def test_source_is_saved_as_it_was(sless: RunCli, two: Fake, hello: Path, tmp_path: Path) -> None:
    ran = sless("source", "hello", "-o", str(tmp_path / "copy"))

    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"3 files of hello are in {tmp_path / 'copy'}\n"
    for name in ("handler.py", "more.py", "lib/run.sh"):
        assert (tmp_path / "copy" / name).read_bytes() == (hello / name).read_bytes()
    assert (tmp_path / "copy" / "lib" / "run.sh").stat().st_mode & 0o100
    assert not (tmp_path / "copy" / "more.py").stat().st_mode & 0o111
    saved = sless("source", "hello", "-o", str(tmp_path / "first"), "--version", "1", "--output", "json")
    assert sorted(json.loads(saved.out)["files"]) == ["handler.py", "lib/run.sh", "more.py"]
    assert (tmp_path / "first" / "more.py").read_text() == "N = 1\n"


def test_files_are_not_written_over_unasked(sless: RunCli, two: Fake, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "handler.py").write_text("mine")

    ran = sless("source", "hello", "-o", str(tmp_path / "copy"))

    assert ran.code == 2
    assert "is not empty" in ran.err
    assert (tmp_path / "copy" / "handler.py").read_text() == "mine"
    assert sless("source", "hello", "-o", str(tmp_path / "copy"), "--force").code == 0
    assert (tmp_path / "copy" / "handler.py").read_text() != "mine"


@pytest.mark.parametrize("path", ["../outside.py", "/tmp/outside.py", "lib/../../outside.py", "link/outside.py"])
def test_nothing_is_written_outside_of_the_folder(path: str, sless: RunCli, two: Fake, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "link").symlink_to(tmp_path)
    two.archive = zip_of({"good.py": b"", path: b"bad"})

    ran = sless("source", "hello", "-o", str(tmp_path / "copy"), "--force")

    assert ran.code == 1
    assert "leads out of" in ran.err
    assert not (tmp_path / "outside.py").exists()
    assert not (tmp_path / "copy" / "good.py").exists()


def test_a_version_that_is_not_there_is_said(sless: RunCli, two: Fake, tmp_path: Path) -> None:
    ran = sless("source", "hello", "--version", "9")

    assert ran.code == 4
    assert "version 9 of hello is not there" in ran.err
    assert sless("source", "hello", "--version", "9", "-o", str(tmp_path / "none")).code == 4
    assert not (tmp_path / "none").exists()


@pytest.mark.fault(44)
def test_source_survives_a_broken_connection(sless: RunCli, two: Fake, tmp_path: Path) -> None:
    two.drops = {"GET": 2}

    assert sless("source", "hello", "-o", str(tmp_path / "copy")).code == 0
