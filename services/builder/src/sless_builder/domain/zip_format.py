"""A zip's structure, read without trusting it (PKWARE APPNOTE 6.3.10; section numbers below are its).

Nothing is held that an attacker can make large: entries are given one by one, and names are bounded.
The archive's directory and the headers before each file must tell the same; programs that read only one of
the two would otherwise see different archives.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from sless_builder.errors import ArchiveInvalid

LOCAL_MAGIC: Final = b"PK\x03\x04"
EMPTY_MAGIC: Final = b"PK\x05\x06"
STORED: Final = 0
DEFLATED: Final = 8
CHUNK_BYTES: Final = 64 * 1024

_CENTRAL_MAGIC: Final = b"PK\x01\x02"
_END64_MAGIC: Final = b"PK\x06\x06"
_LOCATOR_MAGIC: Final = b"PK\x06\x07"
_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END: Final = struct.Struct("<4sHHHHIIH")
_END64: Final = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR: Final = struct.Struct("<4sIQI")
_MAX_COMMENT: Final = 0xFFFF
_FULL16: Final = 0xFFFF
_FULL32: Final = 0xFFFFFFFF
_ZIP64_FIELD: Final = 0x0001
_ENCRYPTED: Final = 0x0001 | 0x0040
_SIZES_FOLLOW: Final = 0x0008
_PATCHED: Final = 0x0020


@dataclass(frozen=True, slots=True)
class Directory:
    """Where the archive's directory lies, and how many entries it says it has."""

    offset: int
    end: int
    entries: int


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One entry of the directory. Sizes and offsets in bytes; `mode` is the Unix mode, 0 when none was stored."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed_size: int
    size: int
    mode: int
    header_offset: int

    @property
    def encrypted(self) -> bool:
        """Whether the content is encrypted."""
        return bool(self.flags & _ENCRYPTED)

    @property
    def utf8(self) -> bool:
        """Whether the name says that it is UTF-8."""
        return bool(self.flags & 0x0800)


def read_directory(file: BinaryIO) -> Directory:
    """Find the directory. Raises ArchiveInvalid. Bytes after the end record are ignored, as unzip does."""
    size = file.seek(0, os.SEEK_END)
    position, record = _end_record(file, size)
    _, disk, start_disk, here, entries, length, offset, _ = _END.unpack(record)
    end = position
    if (wide := _wide_end_record(file, position)) is not None:
        end, narrow = wide[0], (disk, start_disk, here, entries, length, offset)
        disk, start_disk, here, entries, length, offset = _agreed(narrow, wide[1])
    if disk or start_disk or here != entries:
        raise ArchiveInvalid("code must be one zip: this one is a part of a split archive")
    if offset + length != end:
        raise ArchiveInvalid(
            f"code is a broken zip: its directory should end at byte {offset + length}, its end record stands at {end}"
        )
    return Directory(offset, end, entries)


def read_entries(file: BinaryIO, directory: Directory, max_name_bytes: int) -> Iterator[RawEntry]:
    """The directory's entries in order. Raises ArchiveInvalid at the first that can't be read."""
    position = directory.offset
    for number in range(1, directory.entries + 1):
        file.seek(position)
        head = file.read(_CENTRAL.size)
        if len(head) < _CENTRAL.size or head[:4] != _CENTRAL_MAGIC or position + _CENTRAL.size > directory.end:
            raise ArchiveInvalid(f"code is a broken zip: its directory breaks off before entry {number}")
        entry, length = _entry(file, head, max_name_bytes)
        position += length
        yield entry
    if position != directory.end:
        raise ArchiveInvalid(
            f"code is a broken zip: its directory has more than the {directory.entries} entries it tells"
        )


def data_start(file: BinaryIO, entry: RawEntry) -> int:
    """Where the entry's content begins. Raises ArchiveInvalid unless the header before it agrees with the directory."""
    file.seek(entry.header_offset)
    head = file.read(_LOCAL.size)
    if len(head) < _LOCAL.size or head[:4] != LOCAL_MAGIC:
        raise ArchiveInvalid(f"code is a broken zip: there is no file at byte {entry.header_offset} for {shown(entry)}")
    _, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(head)
    name, extra = file.read(name_length), file.read(extra_length)
    if name != entry.name or method != entry.method or (flags ^ entry.flags) & (_ENCRYPTED | 0x0800):
        raise ArchiveInvalid(f"code is a broken zip: {shown(entry)} and its header {name!r} are not the same file")
    if not flags & _SIZES_FOLLOW:
        size, packed = _widened(extra, (size, packed), name)
        if (crc, packed, size) != (entry.crc, entry.packed_size, entry.size):
            raise ArchiveInvalid(f"code is a broken zip: directory and header give {shown(entry)} different sizes")
    return entry.header_offset + _LOCAL.size + len(name) + len(extra)


def read_content(file: BinaryIO, start: int, entry: RawEntry) -> Iterator[bytes]:
    """The entry's content in chunks, never more than it says. Raises ArchiveInvalid when it is not what it says."""
    count, crc = 0, 0
    chunks = _inflated(file, start, entry) if entry.method == DEFLATED else _stored(file, start, entry)
    for chunk in chunks:
        count += len(chunk)
        if count > entry.size:
            raise ArchiveInvalid(f"code is a zip bomb: {shown(entry)} says {entry.size} bytes and unpacks to more")
        crc = zlib.crc32(chunk, crc)
        yield chunk
    if count != entry.size:
        raise ArchiveInvalid(f"code is a broken zip: {shown(entry)} says {entry.size} bytes and has {count}")
    if crc != entry.crc:
        raise ArchiveInvalid(f"code is a broken zip: the checksum of {shown(entry)} is wrong")


def shown(entry: RawEntry) -> str:
    """The entry's name for a sentence: quoted, readable, bounded."""
    text = entry.name.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 100 else text[:100] + "…")


def _inflated(file: BinaryIO, start: int, entry: RawEntry) -> Iterator[bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for packed in _stored(file, start, entry):
            pending = packed
            while pending and not stream.eof:
                yield stream.decompress(pending, CHUNK_BYTES)
                pending = stream.unconsumed_tail
            if stream.unused_data or (stream.eof and pending):
                raise ArchiveInvalid(f"code is a broken zip: {shown(entry)} goes on after its end")
        while not stream.eof and (rest := stream.decompress(stream.unconsumed_tail, CHUNK_BYTES)):
            yield rest
    except zlib.error as error:
        raise ArchiveInvalid(f"code is a broken zip: {shown(entry)} can't be unpacked ({error})") from None
    if not stream.eof:
        raise ArchiveInvalid(f"code is a broken zip: {shown(entry)} breaks off")


def _stored(file: BinaryIO, start: int, entry: RawEntry) -> Iterator[bytes]:
    left = entry.packed_size
    while left:
        file.seek(start + entry.packed_size - left)
        chunk = file.read(min(left, CHUNK_BYTES))
        if not chunk:
            raise ArchiveInvalid(f"code is a broken zip: {shown(entry)} breaks off")
        left -= len(chunk)
        yield chunk


def _end_record(file: BinaryIO, size: int) -> tuple[int, bytes]:
    """The last end record whose comment fits into the file (4.3.16)."""
    tail_start = max(0, size - _END.size - _MAX_COMMENT)
    file.seek(tail_start)
    tail = file.read(size - tail_start)
    at = len(tail)
    while (at := tail.rfind(EMPTY_MAGIC, 0, at + 3 if at < len(tail) else at)) >= 0:
        record = tail[at : at + _END.size]
        if len(record) == _END.size and at + _END.size + _END.unpack(record)[-1] <= len(tail):
            return tail_start + at, record
    raise ArchiveInvalid(f"code is a broken zip: its end is missing ({size} bytes arrived); was the upload cut off?")


def _wide_end_record(file: BinaryIO, position: int) -> tuple[int, tuple[int, ...]] | None:
    """The zip64 end record (4.3.14), when the archive has one: where it stands, and its six numbers."""
    if position < _LOCATOR.size:
        return None
    file.seek(position - _LOCATOR.size)
    locator = file.read(_LOCATOR.size)
    if locator[:4] != _LOCATOR_MAGIC:
        return None
    _, disk, at, disks = _LOCATOR.unpack(locator)
    if disk or disks > 1 or at + _END64.size > position - _LOCATOR.size:
        raise ArchiveInvalid("code is a broken zip: its zip64 end record is not where it says")
    file.seek(at)
    record = file.read(_END64.size)
    if record[:4] != _END64_MAGIC:
        raise ArchiveInvalid("code is a broken zip: its zip64 end record is not where it says")
    numbers = _END64.unpack(record)
    return at, numbers[4:]


def _agreed(narrow: tuple[int, ...], wide: tuple[int, ...]) -> tuple[int, ...]:
    full = (_FULL16, _FULL16, _FULL16, _FULL16, _FULL32, _FULL32)
    if any(small not in (large, limit) for small, large, limit in zip(narrow, wide, full, strict=True)):
        raise ArchiveInvalid("code is a broken zip: its two end records contradict each other")
    return wide


def _entry(file: BinaryIO, head: bytes, max_name_bytes: int) -> tuple[RawEntry, int]:
    (_, _, _, flags, method, _, _, crc, packed, size, name_length, extra_length, comment_length, disk, _, attributes,
     offset) = _CENTRAL.unpack(head)  # fmt: skip
    if name_length > max_name_bytes:
        raise ArchiveInvalid(f"code has a path of {name_length} bytes; at most {max_name_bytes} are allowed")
    name, extra = file.read(name_length), file.read(extra_length)
    if flags & _PATCHED:
        raise ArchiveInvalid(f"code has a patch instead of a file: {name!r}")
    size, packed, offset = _widened(extra, (size, packed, offset), name)
    if disk not in (0, _FULL16):
        raise ArchiveInvalid("code must be one zip: this one is a part of a split archive")
    entry = RawEntry(name, flags, method, crc, packed, size, attributes >> 16, offset)
    return entry, _CENTRAL.size + name_length + extra_length + comment_length


def _widened(extra: bytes, values: tuple[int, ...], name: bytes) -> tuple[int, ...]:
    """The values, those at their highest replaced by the ones in the zip64 field (4.5.3)."""
    if _FULL32 not in values:
        return values
    wide = _extra_field(extra, _ZIP64_FIELD)
    if len(wide) < 8 * values.count(_FULL32):
        raise ArchiveInvalid(f"code is a broken zip: {name!r} has no zip64 sizes where it says so")
    numbers = (int.from_bytes(wide[at : at + 8], "little") for at in range(0, len(wide), 8))
    return tuple(next(numbers) if value == _FULL32 else value for value in values)


def _extra_field(extra: bytes, wanted: int) -> bytes:
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == wanted:
            return extra[4 : 4 + length]
        extra = extra[4 + length :]
    return b""
