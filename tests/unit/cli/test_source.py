"""Folder → zip."""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from sless_cli import source
from sless_cli.errors import UsageFault
from sless_cli.source import read_source


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def names(archive: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive)).namelist()


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    archives = []
    for number in (1, 2):
        folder = tmp_path / str(number) / "code"
        (folder / "lib").mkdir(parents=True)
        for name in ("b.py", "a.py", "lib/c.py") if number == 1 else ("lib/c.py", "a.py", "b.py"):
            (folder / name).write_text(f"# {name}\n")
            os.utime(folder / name, (number * 1_000_000_000, number * 1_000_000_000))
            (folder / name).chmod(0o600 if number == 1 else 0o664)
        archives.append(read_source(folder).archive)

    assert archives[0] == archives[1]
    assert names(archives[0]) == ["a.py", "b.py", "lib/c.py"]


def test_a_file_that_may_be_executed_stays_so(tmp_path: Path) -> None:
    write(tmp_path, **{"run.sh": "", "handler.py": ""})
    (tmp_path / "run.sh").chmod(0o700)

    archive = zipfile.ZipFile(io.BytesIO(read_source(tmp_path).archive))

    assert archive.getinfo("run.sh").external_attr >> 16 & 0o777 == 0o755
    assert archive.getinfo("handler.py").external_attr >> 16 & 0o777 == 0o644


IGNORED_TREES = [
    {
        ".gitignore": "*.log\nbuild/\n/top.txt\n",
        "a.log": "",
        "build/x.py": "",
        "top.txt": "",
        "sub/top.txt": "",
        "h.py": "",
    },
    {".gitignore": "*.txt\n!keep.txt\n", "a.txt": "", "keep.txt": "", "sub/keep.txt": "", "sub/b.txt": ""},
    {".gitignore": "*.txt\n", "sub/.gitignore": "!b.txt\n", "a.txt": "", "sub/b.txt": "", "sub/deep/b.txt": ""},
    {".gitignore": "build\n", "build/.gitignore": "!*\n", "build/x.py": "", "sub/build/y.py": "", "h.py": ""},
    {".gitignore": "sub/*\n!sub/keep\n", "sub/keep": "", "sub/drop": "", "sub/dir/x": ""},
    {
        ".gitignore": "# comment\n\n\\#odd\n**/cache/**\nfoo/**/bar\n",
        "#odd": "",
        "a/cache/x": "",
        "foo/1/2/bar": "",
        "h": "",
    },
    {"sub/.gitignore": "/only\n", "only": "", "sub/only": "", "sub/deep/only": ""},
    {
        ".gitignore": ".venv/\n__pycache__/\n*.pyc\n",
        ".venv/x/y.py": "",
        "__pycache__/a.pyc": "",
        "m.pyc": "",
        "m.py": "",
    },
]


@pytest.mark.parametrize("tree", IGNORED_TREES)
def test_gitignore_means_what_git_says(tree: dict[str, str], tmp_path: Path) -> None:
    for name, text in tree.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, env=environment, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
    )

    assert names(read_source(tmp_path).archive) == sorted(filter(None, listed.stdout.decode().split("\0")))


def test_the_git_folder_is_always_left_out(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, **{".git/HEAD": "x", "handler.py": ""})

    assert names(read_source(tmp_path).archive) == ["handler.py"]


def test_a_symbolic_link_is_refused_unless_ignored(tmp_path: Path) -> None:
    write(tmp_path, **{"handler.py": ""})
    (tmp_path / "link.py").symlink_to("/etc/passwd")

    with pytest.raises(UsageFault, match=r"link\.py is a symbolic link"):
        read_source(tmp_path)

    write(tmp_path, **{".gitignore": "link.py\n"})
    assert names(read_source(tmp_path).archive) == [".gitignore", "handler.py"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, **{"handler.py": ""})
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UsageFault, match="pipe is neither a file nor a folder"):
        read_source(tmp_path)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.py"))).write_text("")

    with pytest.raises(UsageFault, match="not UTF-8"):
        read_source(tmp_path)


def test_too_many_and_too_large_files_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(300 * 1024 * 1024)  # sparse
    monkeypatch.setattr(source, "_read", lambda path: pytest.fail(f"{path} was read"))

    with pytest.raises(UsageFault, match="more than 256 MiB"):
        read_source(tmp_path)


def test_the_manifest_is_read_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, **{"handler.py": "", "sless.toml": "memory_mb = 256\n"})

    found = read_source(tmp_path)

    assert found.manifest == "memory_mb = 256\n"
    assert names(found.archive) == ["handler.py"]


def test_a_zip_is_sent_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "code.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("main.py", "def handle(event): ...\n")
        archive.writestr("lib/other.py", "")

    found = read_source(path)

    assert found.archive == path.read_bytes()
    assert found.name == "code"
    assert found.files == {"main.py": b"def handle(event): ...\n"}


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04" + b"\0" * 40])
def test_a_broken_zip_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "code.zip").write_bytes(content)

    with pytest.raises(UsageFault, match="no zip that can be read"):
        read_source(tmp_path / "code.zip")


def test_nothing_to_deploy_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="no files to deploy"):
        read_source(tmp_path)
    with pytest.raises(UsageFault, match="is not there"):
        read_source(tmp_path / "nowhere")
