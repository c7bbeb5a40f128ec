"""Which archives are taken, and which are refused with which sentence."""

from __future__ import annotations

import io
import stat
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sless_builder.domain.archive import Archive, ArchiveInspector, ArchiveLimits, read
from sless_builder.errors import ArchiveInvalid, ArchiveTooLarge
from sless_platform.errors import Kind, PlatformError

from tests.support import archives

LIMITS = ArchiveLimits(archive_bytes=32 << 20, unpacked_bytes=256 << 20, files=10_000, path_bytes=1024)


def inspect(data: bytes, entrypoint: str = "handler.handle", limits: ArchiveLimits = LIMITS) -> Archive:
    return ArchiveInspector(limits).inspect(io.BytesIO(data), entrypoint)


@pytest.mark.parametrize("name", archives.HOSTILE)
def test_hostile_archive_is_refused_with_a_sentence_that_names_what_is_wrong(name: str) -> None:
    hostile = archives.HOSTILE[name]
    with pytest.raises(ArchiveInvalid) as refused:
        inspect(hostile.make())
    assert hostile.words in refused.value.message
    assert refused.value.message.startswith("code ")
    assert refused.value.field == "code"
    assert refused.value.kind is Kind.INVALID_ARGUMENT


def test_honest_content_above_the_limit_is_too_large_and_no_bomb() -> None:
    limits = ArchiveLimits(archive_bytes=32 << 20, unpacked_bytes=1 << 20, files=10, path_bytes=100)
    with pytest.raises(ArchiveTooLarge, match="unpacks to 1,"):
        inspect(
            archives.zip_of({"handler.py": "", "text.txt": bytes(range(256)) * 5_000}, compression=0), limits=limits
        )


def test_files_come_sorted_with_sizes_and_modes() -> None:
    script = archives.Raw(b"bin/run.sh", b"#!/bin/sh\n", mode=stat.S_IFREG | 0o700)
    archive = inspect(archives.raw_zip(script, archives.Raw(b"handler.py", b"x = 1\n", mode=stat.S_IFREG | 0o600)))
    assert [(file.path, file.size, file.executable) for file in archive.files] == [
        ("bin/run.sh", 10, True),
        ("handler.py", 6, False),
    ]
    assert archive.unpacked_bytes == 16


def test_leftovers_of_desktops_and_interpreters_are_left_out() -> None:
    archive = inspect(
        archives.zip_of(
            {
                "handler.py": "x = 1\n",
                ".DS_Store": "junk",
                "lib/.DS_Store": "junk",
                "__MACOSX/._handler.py": "junk",
                "__pycache__/handler.cpython-311.pyc": "junk",
                "lib/__pycache__/x.cpython-311.pyc": "junk",
            }
        )
    )
    assert archive.paths == {"handler.py"}
    assert len(archive.left_out) == 5


def test_archive_made_by_windows_is_taken() -> None:
    plain = archives.Raw(b"handler.py", b"x = 1\n", mode=0)
    folder = archives.Raw(b"lib/", method=0, mode=0)
    assert inspect(archives.raw_zip(plain, folder, archives.Raw(b"lib/x.txt", b"", mode=0))).paths == {
        "handler.py",
        "lib/x.txt",
    }


def test_archive_made_by_macos_has_utf8_names_without_saying_so() -> None:
    archive = inspect(archives.raw_zip(archives.Raw(b"handler.py", b""), archives.Raw("data/köln.txt".encode(), b"")))
    assert "data/köln.txt" in archive.paths


def test_name_in_an_old_code_page_is_read_as_such() -> None:
    archive = inspect(archives.raw_zip(archives.Raw(b"handler.py", b""), archives.Raw(b"k\x94ln.txt", b"")))
    assert "köln.txt" in archive.paths


def test_paths_that_begin_with_a_dot_and_a_slash_are_plain_ones() -> None:
    entries = [archives.Raw(b"./", method=0, mode=stat.S_IFDIR | 0o755), archives.Raw(b"./handler.py", b"")]
    assert inspect(archives.raw_zip(*entries)).paths == {"handler.py"}


def test_streamed_archive_with_sizes_after_the_content_is_taken() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("handler.py", archives.HANDLER)
    assert inspect(pipe.getvalue()).paths == {"handler.py"}


def test_zip64_archive_is_taken() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open("handler.py", "w", force_zip64=True) as file:
        file.write(archives.HANDLER.encode())
    assert inspect(buffer.getvalue()).paths == {"handler.py"}


def test_comment_and_bytes_after_the_end_are_ignored_as_unzip_does() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("handler.py", archives.HANDLER)
        archive.comment = b"made by PK\x05\x06 hand"
    assert inspect(buffer.getvalue() + b"\n").paths == {"handler.py"}


@pytest.mark.parametrize(
    ("entrypoint", "path"),
    [
        ("handler.handle", "handler/__init__.py"),
        ("handler-http.handle", "handler-http.py"),
        ("app.api.main.run", "app/api/main.py"),
        ("app.api.run", "app/api/__init__.py"),
    ],
)
def test_entrypoint_finds_its_module_as_import_would(entrypoint: str, path: str) -> None:
    assert path in inspect(archives.zip_of({path: archives.HANDLER}), entrypoint).paths


def test_missing_entrypoint_names_ten_files_at_most() -> None:
    files = {f"m{number:02}.py": "" for number in range(15)}
    with pytest.raises(ArchiveInvalid, match=r"it has m00\.py, .*m09\.py and 5 more$"):
        inspect(archives.zip_of(files))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_archive_is_refused_or_read_but_never_anything_else(data: st.DataObject) -> None:
    whole = bytearray(
        archives.zip_of({"handler.py": archives.HANDLER, "lib/a.py": "a = 1\n" * 20, "b.bin": b"\x00" * 99})
    )
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    damaged = bytes(whole[: cut if data.draw(st.booleans()) else len(whole)])
    outcome = outcome_of(damaged)
    if isinstance(outcome, PlatformError):
        assert outcome.field == "code"
    else:
        assert "handler.py" in outcome.paths


def outcome_of(data: bytes) -> Archive | PlatformError:
    try:
        return inspect(data)
    except PlatformError as error:
        return error


segments = st.text("abcXYZ éß._-1", min_size=1, max_size=8).filter(lambda text: text.strip(". ") and "__" not in text)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.lists(segments, min_size=1, max_size=3).map("/".join), st.binary(max_size=300), max_size=6))
def test_what_is_taken_reads_as_the_standard_library_reads_it(files: dict[str, bytes]) -> None:
    data = archives.zip_of({"handler.py": b""} | files)
    outcome = outcome_of(data)
    if isinstance(outcome, PlatformError):
        assert "twice" in outcome.message or "one file on some systems" in outcome.message
        return
    with zipfile.ZipFile(io.BytesIO(data)) as reference:
        expected = {name: reference.read(name) for name in reference.namelist()}
    buffer = io.BytesIO(data)
    assert {file.path: b"".join(read(buffer, file)) for file in outcome.files} == expected
