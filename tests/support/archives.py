"""Zips for tests: good ones, and every kind that must be refused.

Each hostile one is a function without arguments that gives the archive's bytes; HOSTILE lists them all by name, with the words that
the refusal must have. All of them hold a `handler.py`, so that nothing but the fault itself can be why they are refused.
"""

from __future__ import annotations

import io
import random
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

HANDLER = "def handle(event):\n    return {'hello': event.get('name', 'world')}\n"
EPOCH = (1980, 1, 1, 0, 0, 0)
_END = struct.Struct("<4sHHHHIIH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<4sHHHHHIIIHH")


def zip_of(
    files: Mapping[str, str | bytes] | None = None, *, compression: int = zipfile.ZIP_DEFLATED, level: int | None = None
) -> bytes:
    """A zip with these files; by default a handler alone. The same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for path, content in ({"handler.py": HANDLER} if files is None else files).items():
            archive.writestr(_info(path, compression), content, compresslevel=level)
    return buffer.getvalue()


def handler(source: str = HANDLER) -> bytes:
    """A zip with one file, handler.py."""
    return zip_of({"handler.py": source})


def _info(path: str, compression: int = zipfile.ZIP_DEFLATED, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, EPOCH)
    info.compress_type = compression
    info.create_system = 3
    info.external_attr = mode << 16
    return info


@dataclass
class Raw:
    """One entry, written byte by byte: what the directory says and what the header says may differ."""

    name: bytes
    content: bytes = b""
    method: int = 8
    flags: int = 0
    mode: int = stat.S_IFREG | 0o644
    size: int | None = None
    packed_size: int | None = None
    crc: int | None = None
    local_name: bytes | None = None
    local_size: int | None = None
    extra: bytes = b""
    at: int | None = None

    def packed(self) -> bytes:
        """The content as it lies in the archive."""
        if self.method != 8:
            return self.content
        stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        return stream.compress(self.content) + stream.flush()


def raw_zip(*entries: Raw, trailer: bytes = b"", count: int | None = None) -> bytes:
    """An archive of raw entries. `trailer` follows the end record; `count` is what that says instead of the truth."""
    body, central = b"", b""
    for entry in entries:
        packed = entry.packed()
        crc = zlib.crc32(entry.content) if entry.crc is None else entry.crc
        size = len(entry.content) if entry.size is None else entry.size
        packed_size = len(packed) if entry.packed_size is None else entry.packed_size
        offset = len(body) if entry.at is None else entry.at
        local_name = entry.name if entry.local_name is None else entry.local_name
        local_size = size if entry.local_size is None else entry.local_size
        if entry.at is None:
            body += _LOCAL.pack(
                b"PK\x03\x04", 20, entry.flags, entry.method, 0, 33, crc, packed_size, local_size, len(local_name),
                len(entry.extra)
            ) + local_name + entry.extra + packed  # fmt: skip
        central += _CENTRAL.pack(
            b"PK\x01\x02", 0x031E, 20, entry.flags, entry.method, 0, 33, crc, packed_size, size, len(entry.name),
            len(entry.extra), 0, 0, 0, (entry.mode << 16) & 0xFFFFFFFF, offset
        ) + entry.name + entry.extra  # fmt: skip
    total = len(entries) if count is None else count
    return body + central + _END.pack(b"PK\x05\x06", 0, 0, total, total, len(central), len(body), 0) + trailer


def _with_handler(*entries: Raw) -> bytes:
    return raw_zip(Raw(b"handler.py", HANDLER.encode()), *entries)


# -- what must be refused


def nothing() -> bytes:
    """No bytes at all."""
    return b""


def not_a_zip() -> bytes:
    """Another kind of archive."""
    return b"\x1f\x8b\x08\x00" + b"\x00" * 200


def empty() -> bytes:
    """A zip without an entry."""
    return _END.pack(b"PK\x05\x06", 0, 0, 0, 0, 0, 0, 0)


def folders_only() -> bytes:
    """A zip of folders."""
    return raw_zip(Raw(b"a/", method=0, mode=stat.S_IFDIR | 0o755), Raw(b"a/b/", method=0, mode=stat.S_IFDIR | 0o755))


def left_overs_only() -> bytes:
    """A zip of what macOS leaves behind."""
    return zip_of({"__MACOSX/._handler.py": "x", ".DS_Store": "x"})


def truncated() -> bytes:
    """Cut off in the middle."""
    whole = zip_of({"handler.py": HANDLER, "data.bin": bytes(range(256)) * 50})
    return whole[: len(whole) // 2]


def no_directory() -> bytes:
    """Its directory is overwritten."""
    whole = bytearray(handler())
    at = whole.find(b"PK\x01\x02")
    whole[at : at + 4] = b"XXXX"
    return bytes(whole)


def prefixed() -> bytes:
    """A shell script, then a zip."""
    return b"#!/bin/sh\n" + handler()


def traversal() -> bytes:
    """A path that leaves the archive."""
    return _with_handler(Raw(b"lib/../../evil.py", b"x"))


def absolute() -> bytes:
    """An absolute path."""
    return _with_handler(Raw(b"/etc/passwd", b"x"))


def drive_letter() -> bytes:
    """A path on a Windows drive."""
    return _with_handler(Raw(b"C:/evil.py", b"x"))


def backslash() -> bytes:
    """A path in Windows' spelling."""
    return _with_handler(Raw(b"lib\\..\\evil.py", b"x"))


def nul_name() -> bytes:
    """A name with a NUL."""
    return _with_handler(Raw(b"evil.py\x00.txt", b"x"))


def control_name() -> bytes:
    """A name with a terminal's escape."""
    return _with_handler(Raw(b"evil\x1b[2J.py", b"x"))


def bad_utf8_name() -> bytes:
    """A name that says it is UTF-8 and is not."""
    return _with_handler(Raw(b"caf\xff.py", b"x", flags=0x0800))


def empty_name() -> bytes:
    """An entry without a name."""
    return _with_handler(Raw(b"", b"x"))


def empty_part() -> bytes:
    """A path with nothing between two slashes."""
    return _with_handler(Raw(b"lib//x.py", b"x"))


def long_name() -> bytes:
    """A name that no file system takes."""
    return _with_handler(Raw(b"a" * 256 + b".py", b"x"))


def long_path() -> bytes:
    """A path of more than 1,024 bytes."""
    return _with_handler(Raw(b"/".join([b"d" * 100] * 11) + b".py", b"x"))


def deep_path() -> bytes:
    """A path of a hundred folders."""
    return _with_handler(Raw(b"d/" * 100 + b"x.py", b"x"))


def symlink() -> bytes:
    """A symbolic link out of the archive."""
    return _with_handler(Raw(b"passwd", b"/etc/passwd", method=0, mode=stat.S_IFLNK | 0o777))


def device() -> bytes:
    """A character device."""
    return _with_handler(Raw(b"null", mode=stat.S_IFCHR | 0o666))


def fifo() -> bytes:
    """A named pipe."""
    return _with_handler(Raw(b"pipe", mode=stat.S_IFIFO | 0o666))


def duplicate() -> bytes:
    """One path twice, with other content."""
    return _with_handler(Raw(b"handler.py", b"raise SystemExit\n"))


def duplicate_by_dot() -> bytes:
    """One path twice, spelled with a dot the second time."""
    return _with_handler(Raw(b"./handler.py", b"raise SystemExit\n"))


def case_collision() -> bytes:
    """Two paths that differ in case alone."""
    return _with_handler(Raw(b"Handler.py", b"x"))


def folder_case_collision() -> bytes:
    """Two folders that differ in case alone."""
    return _with_handler(Raw(b"Lib/a.py", b"x"), Raw(b"lib/b.py", b"x"))


def unicode_collision() -> bytes:
    """Two paths that differ in their Unicode normalisation alone."""
    return _with_handler(Raw("é.py".encode(), b"x"), Raw("e\u0301.py".encode(), b"x"))


def file_and_folder() -> bytes:
    """A path that is a file and a folder."""
    return _with_handler(Raw(b"lib", b"x"), Raw(b"lib/a.py", b"x"))


def folder_and_file() -> bytes:
    """The same in the other order."""
    return _with_handler(Raw(b"lib/a.py", b"x"), Raw(b"lib", b"x"))


def folder_with_content() -> bytes:
    """A folder that has bytes."""
    return _with_handler(Raw(b"lib/", b"x" * 50, method=0))


def too_many_files() -> bytes:
    """10,001 files."""
    return zip_of({"handler.py": HANDLER} | {f"f{number}.txt": "" for number in range(10_000)})


def too_many_folders() -> bytes:
    """10,010 folders in 170 paths."""
    files = {f"{number}/" + "/".join("abcdefghijklmnopqrstuvwxyz" * 2) + "/x": "" for number in range(200)}
    return zip_of({"handler.py": HANDLER} | files)


def bomb() -> bytes:
    """257 MiB of zeros in 1 MiB."""
    return zip_of({"handler.py": HANDLER, "zeros.bin": bytes(257 << 20)}, level=1)


def lying_bomb() -> bytes:
    """10 MiB that say they are 10 bytes."""
    return _with_handler(Raw(b"zeros.bin", bytes(10 << 20), size=10))


def overlapping_bomb() -> bytes:
    """Many names for one content (Fifield's "full overlap")."""
    kernel = Raw(b"zeros.bin", bytes(1 << 20))
    names = [Raw(b"zeros.bin", bytes(1 << 20), at=0) for _ in range(50)]
    for number, entry in enumerate(names):
        entry.name = b"zero%d.bin" % number
    return raw_zip(kernel, Raw(b"handler.py", HANDLER.encode()), *names)


def quoted_bomb() -> bytes:
    """A file whose content holds the header of the next ("quoted overlap")."""
    inner = Raw(b"inner.bin", b"inner")
    whole = raw_zip(inner)[: len(raw_zip(inner)) - _END.size]
    header = whole[: whole.find(b"PK\x01\x02")]
    outer = Raw(b"outer.bin", header, method=0)
    return raw_zip(outer, Raw(b"handler.py", HANDLER.encode()), Raw(b"inner.bin", b"inner", at=_LOCAL.size + 9))


def encrypted() -> bytes:
    """A file with a password."""
    return _with_handler(Raw(b"secret.txt", b"x" * 20, flags=0x0001))


def bzip2() -> bytes:
    """A compression that not every unzip knows."""
    return zip_of({"handler.py": HANDLER * 50}, compression=zipfile.ZIP_BZIP2)


def lzma() -> bytes:
    """Another one."""
    return zip_of({"handler.py": HANDLER * 50}, compression=zipfile.ZIP_LZMA)


def bad_checksum() -> bytes:
    """A content that is not what its checksum says."""
    return _with_handler(Raw(b"data.txt", b"some data", crc=12345))


def bad_stream() -> bytes:
    """A content that is no deflate stream."""
    return _with_handler(Raw(b"data.txt", b"some data", method=0, packed_size=9), _not_deflate())


def _not_deflate() -> Raw:
    entry = Raw(b"data2.txt", b"\xff\xff\xff\xff\xff", method=8)
    entry.packed = lambda: b"\xff\xff\xff\xff\xff"  # type: ignore[method-assign]
    return entry


def short_content() -> bytes:
    """A content that is shorter than it says."""
    return _with_handler(Raw(b"data.txt", b"some data", size=10, local_size=10))


def other_local_name() -> bytes:
    """The directory names another file than the header."""
    return _with_handler(Raw(b"data.txt", b"x", local_name=b"evil.txt"))


def other_local_size() -> bytes:
    """Directory and header give other sizes."""
    return _with_handler(Raw(b"data.txt", b"x" * 100, local_size=5))


def wrong_count() -> bytes:
    """The end record tells fewer entries than there are."""
    return raw_zip(Raw(b"handler.py", HANDLER.encode()), Raw(b"more.py", b"x"), count=1)


def too_high_count() -> bytes:
    """The end record tells more entries than there are."""
    return raw_zip(Raw(b"handler.py", HANDLER.encode()), count=60_000)


def zip64_without_sizes() -> bytes:
    """A size that is to be found in a field that is not there."""
    return _with_handler(Raw(b"data.txt", b"x", size=0xFFFFFFFF, local_size=1))


def zip64_lie() -> bytes:
    """A zip64 end record that contradicts the plain one."""
    whole = handler()
    at = whole.rfind(b"PK\x05\x06")
    _, _, _, count, _, length, offset, _ = _END.unpack(whole[at : at + _END.size])
    wide = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, offset + 1)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1)
    return whole[:at] + wide + locator + whole[at:]


def no_entrypoint() -> bytes:
    """No handler.py."""
    return zip_of({"main.py": HANDLER, "lib/util.py": ""})


def wrapped_in_folder() -> bytes:
    """The folder was zipped, not what is in it."""
    return zip_of({"hello/handler.py": HANDLER, "hello/util.py": ""})


def wrong_case_entrypoint() -> bytes:
    """The entrypoint's file, but for its capitals."""
    return zip_of({"Handler.py": HANDLER})


@dataclass(frozen=True)
class Hostile:
    """How to make an archive that must be refused, and words that the refusal has."""

    make: Callable[[], bytes]
    words: str


HOSTILE: dict[str, Hostile] = {
    hostile.make.__name__: hostile
    for hostile in (
        Hostile(nothing, "is not a zip: it is empty"),
        Hostile(not_a_zip, "is not a zip: it begins with"),
        Hostile(empty, "is an empty zip"),
        Hostile(folders_only, "is a zip without files"),
        Hostile(left_overs_only, "is a zip without files"),
        Hostile(truncated, "its end is missing"),
        Hostile(no_directory, "breaks off before entry 1"),
        Hostile(prefixed, "is not a zip: it begins with"),
        Hostile(traversal, "leaves the archive: 'lib/../../evil.py'"),
        Hostile(absolute, "an absolute path: '/etc/passwd'"),
        Hostile(drive_letter, "an absolute path: 'C:/evil.py'"),
        Hostile(backslash, "a path with a backslash"),
        Hostile(nul_name, "control characters: 'evil.py\\x00.txt'"),
        Hostile(control_name, "control characters"),
        Hostile(bad_utf8_name, "not the UTF-8 it says to be"),
        Hostile(empty_name, "a path with an empty part"),
        Hostile(empty_part, "a path with an empty part: 'lib//x.py'"),
        Hostile(long_name, "a name of more than 255 bytes"),
        Hostile(long_path, "at most 1024 are allowed"),
        Hostile(deep_path, "a path of 101 parts"),
        Hostile(symlink, "a symbolic link: 'passwd'"),
        Hostile(device, "a special file: 'null'"),
        Hostile(fifo, "a special file: 'pipe'"),
        Hostile(duplicate, "has 'handler.py' twice"),
        Hostile(duplicate_by_dot, "has 'handler.py' twice"),
        Hostile(case_collision, "'handler.py' and 'Handler.py'"),
        Hostile(folder_case_collision, "'Lib' and 'lib'"),
        Hostile(unicode_collision, "one file on some systems"),
        Hostile(file_and_folder, "as a file and as a folder"),
        Hostile(folder_and_file, "as a file and as a folder"),
        Hostile(folder_with_content, "the folder 'lib' has content"),
        Hostile(too_many_files, "more than 10,000 files"),
        Hostile(too_many_folders, "more than 10,000 folders"),
        Hostile(bomb, "is a zip bomb: 'zeros.bin'"),
        Hostile(lying_bomb, "is a zip bomb: 'zeros.bin' says 10 bytes"),
        Hostile(overlapping_bomb, "are not the same file"),
        Hostile(quoted_bomb, "is a zip bomb: 'inner.bin' lies on top of 'outer.bin'"),
        Hostile(encrypted, "an encrypted file: 'secret.txt'"),
        Hostile(bzip2, "packed by method 12"),
        Hostile(lzma, "packed by method 14"),
        Hostile(bad_checksum, "the checksum of 'data.txt' is wrong"),
        Hostile(bad_stream, "'data2.txt' can't be unpacked"),
        Hostile(short_content, "'data.txt' says 10 bytes and has 9"),
        Hostile(other_local_name, "are not the same file"),
        Hostile(other_local_size, "different sizes"),
        Hostile(wrong_count, "more than the 1 entries"),
        Hostile(too_high_count, "breaks off before entry 2"),
        Hostile(zip64_without_sizes, "no zip64 sizes"),
        Hostile(zip64_lie, "contradict each other"),
        Hostile(no_entrypoint, "no handler.py, which the entrypoint handler.handle needs; it has main.py, lib/util.py"),
        Hostile(wrapped_in_folder, "it lies in folder hello/: zip the folder's contents"),
        Hostile(wrong_case_entrypoint, "there is Handler.py: capital and small letters differ"),
    )
}
"""Every archive that must be refused with INVALID_ARGUMENT for entrypoint `handler.handle`."""


def too_large() -> bytes:
    """One byte more than 32 MiB: refused while it streams, as too large."""
    return handler() + bytes((32 << 20) + 1 - len(handler()))


def unpacks_too_large() -> bytes:
    """Honest data that packs to a tenth and unpacks to more than 256 MiB: refused as too large."""
    source = random.Random(1)
    content = b"".join(source.randbytes(420) + bytes(3_676) for _ in range(66_000))
    return zip_of({"handler.py": HANDLER, "data.bin": content})
