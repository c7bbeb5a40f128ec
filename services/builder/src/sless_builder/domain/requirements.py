"""Reads requirements.txt and pyproject.toml of an archive into one manifest."""

from __future__ import annotations

import hashlib
import posixpath
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Specifier
from packaging.utils import canonicalize_name

from sless_builder.domain.build import Problem, UserError
from sless_builder.domain.manifest import REQUIREMENTS_INVALID, Manifest, Origin, Requirement, refused
from sless_builder.domain.requirements_text import Line, Option, decoded, hashes, lines, option

REQUIREMENTS: Final = "requirements.txt"
PYPROJECT: Final = "pyproject.toml"

_INDEX_OPTIONS: Final = ("--index-url", "--extra-index-url", "--find-links", "--no-index", "--trusted-host")
_CHOICES: Final = ("--no-binary", "--only-binary", "--pre", "--require-hashes")
_NO_MATTER: Final = ("--prefer-binary", "--use-feature")
_PACKED: Final = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tar.xz", ".tgz")
_VCS: Final = re.compile(r"(^|@\s*)(git|hg|svn|bzr)\+")
_PLAIN_PATH: Final = re.compile(r"[\w./+!~-]+")
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_TOML_LINE: Final = re.compile(r"\(at line (\d+)")
_MAX_FILES: Final = 100
_MAX_REQUIREMENTS: Final = 5_000
_MAX_BYTES: Final = 1 << 20

Read = Callable[[str], bytes]


def manifest_of(paths: Collection[str], read: Read, *, allow_indexes: bool) -> Manifest:
    """What an archive with these paths asks for: its requirements.txt, or else its pyproject.toml's `project.dependencies`.

    `read` gives a file's content. `allow_indexes`: whether options that name another index are followed, not passed over.
    Raises UserError that names file and line.
    """
    reader = _Reader(paths, read, allow_indexes=allow_indexes)
    if REQUIREMENTS in paths:
        reader.requirements_file(REQUIREMENTS, constraints=False)
    elif PYPROJECT in paths:
        reader.pyproject()
    return reader.manifest()


class _Reader:
    """One reading, file after file."""

    def __init__(self, paths: Collection[str], read: Read, *, allow_indexes: bool) -> None:
        self._paths = frozenset(paths)
        self._read = read
        self._allow_indexes = allow_indexes
        self._begun: set[tuple[str, bool]] = set()
        self._requirements: list[Requirement] = []
        self._constraints: list[Requirement] = []
        self._choices: set[tuple[str, str]] = set()
        self._indexes: list[tuple[str, str]] = []
        self._files: dict[str, str] = {}
        self._warnings: list[str] = []

    def manifest(self) -> Manifest:
        """What has been read."""
        return Manifest(
            tuple(self._requirements),
            tuple(self._constraints),
            tuple(sorted(self._choices)),
            tuple(self._indexes),
            self._files,
            tuple(self._warnings),
        )

    def requirements_file(self, path: str, *, constraints: bool) -> None:
        """Read a file, with those that it names."""
        if (path, constraints) in self._begun:
            return
        self._begun.add((path, constraints))
        for line in lines(path, self._content(path)):
            if "${" in line.text:
                raise refused(line, "variables are not filled in: write the value itself")
            try:
                found = option(line.text)
            except ValueError:
                raise refused(line, "a quote is not closed") from None
            if found is not None:
                self._option(line, found, constraints=constraints)
            else:
                self._add(line, constraints=constraints)

    def pyproject(self) -> None:
        """Read what a project depends on; development groups and extras are left out."""
        text = decoded(self._content(PYPROJECT))
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            at = _TOML_LINE.search(str(error))
            raise _invalid_toml(str(error), int(at[1]) if at else 0) from None
        project = document.get("project", {})
        project = project if isinstance(project, dict) else {}
        self._warn_of_other_ways(document, project)
        listed = project.get("dependencies", [])
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            raise _invalid_toml("project.dependencies must be a list of texts", _line_with(text, "dependencies"))
        for item in listed:
            self._add(Line(PYPROJECT, _line_with(text, item), item.strip()), constraints=False)

    def _content(self, path: str) -> bytes:
        content = self._read(path)
        if len(content) > _MAX_BYTES:
            message = f"{path} has {len(content):,} bytes; at most {_MAX_BYTES:,} are read"
            raise UserError(Problem(REQUIREMENTS_INVALID, message, file=path))
        return content

    def _warn_of_other_ways(self, document: Mapping[str, Any], project: Mapping[str, Any]) -> None:
        tool = document.get("tool")
        poetry = tool.get("poetry") if isinstance(tool, dict) else None
        if isinstance(poetry, dict) and "dependencies" in poetry and "dependencies" not in project:
            self._warnings.append(
                f"{PYPROJECT}: tool.poetry.dependencies is not read; list them in project.dependencies"
            )
        if "dependencies" in (project.get("dynamic") or ()):
            self._warnings.append(f"{PYPROJECT}: dynamic dependencies are not read; list them in requirements.txt")

    def _option(self, line: Line, found: Option, *, constraints: bool) -> None:
        if found.name == "--requirement":
            self.requirements_file(self._included(line, found.value), constraints=constraints)
        elif found.name == "--constraint":
            self.requirements_file(self._included(line, found.value), constraints=True)
        elif found.name == "--editable":
            raise refused(line, "nothing is installed in place: put the package's folder beside the handler instead")
        elif found.name in _INDEX_OPTIONS:
            self._index_option(line, found)
        elif found.name in _CHOICES:
            self._choices.update((found.name, value) for value in found.value.replace(",", " ").split() or [""])
        elif found.name not in _NO_MATTER:
            raise refused(line, f"the option {found.name} is not known here")

    def _index_option(self, line: Line, found: Option) -> None:
        if self._allow_indexes:
            self._indexes.append((found.name, found.value))
        else:
            self._warnings.append(f"{line.where}: {found.name} is ignored; packages come from the platform's index")

    def _included(self, line: Line, value: str) -> str:
        if "://" in value:
            raise refused(line, "only files of the archive can be included")
        path = self._inside(line, value)
        if path not in self._paths:
            raise refused(line, f"there is no file {path} in the code")
        if len(self._begun) >= _MAX_FILES:
            raise refused(line, f"more than {_MAX_FILES} files are included")
        return path

    def _inside(self, line: Line, value: str) -> str:
        """A path relative to the line's file, as one of the archive."""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(line.file), value))
        if value.startswith(("/", "~")) or path == ".." or path.startswith("../"):
            raise refused(line, f"{value} leaves the archive")
        return path

    def _add(self, line: Line, *, constraints: bool) -> None:
        found = self._requirement(line)
        (self._constraints if constraints else self._requirements).append(found)
        if len(self._requirements) + len(self._constraints) > _MAX_REQUIREMENTS:
            raise refused(line, f"more than {_MAX_REQUIREMENTS:,} requirements")

    def _requirement(self, line: Line) -> Requirement:
        text, hashed = hashes(line.text)
        for value in hashed:
            if not _HASH.fullmatch(value):
                raise refused(line, f"{value[:100]} is no hash: write sha256: and its 64 hexadecimal digits")
        if _VCS.search(text):
            raise refused(line, "repositories are not installed from: name a release, or put a wheel into the archive")
        if text.startswith(("http://", "https://")):
            raise refused(line, "name the package before its address: `name @ https://…`")
        if "@" not in text and "://" not in text and _is_path(text):
            return self._file(line, text, hashed)
        try:
            wanted = Specifier(text)
        except InvalidRequirement as error:
            raise refused(line, f"`{text[:100]}` is no requirement: {str(error).splitlines()[0]}") from None
        return self._named(line, wanted, hashed)

    def _named(self, line: Line, wanted: Specifier, hashed: tuple[str, ...]) -> Requirement:
        name = canonicalize_name(wanted.name)
        if wanted.url is None:
            return Requirement(name, str(wanted), Origin.INDEX, line, hashed)
        if not wanted.url.startswith(("http://", "https://")):
            raise refused(
                line, "only https addresses are installed from; list a file of the archive by its path", package=name
            )
        return Requirement(name, str(wanted), Origin.URL, line, hashed)

    def _file(self, line: Line, text: str, hashed: tuple[str, ...]) -> Requirement:
        path = self._inside(line, text)
        if not _PLAIN_PATH.fullmatch(path):
            raise refused(
                line, "a file that is installed has letters, digits and . _ + ! ~ - in its path, nothing else"
            )
        if not text.endswith(_PACKED):
            raise refused(line, "folders are not installed: what lies beside the handler can be imported as it is")
        if path not in self._paths:
            raise refused(line, f"there is no file {path} in the code")
        self._files[path] = hashlib.sha256(self._read(path)).hexdigest()
        name = canonicalize_name(posixpath.basename(path).partition("-")[0])
        return Requirement(name, path, Origin.ARCHIVE, line, hashed)


def _is_path(text: str) -> bool:
    return text.startswith((".", "/", "~")) or text.endswith(_PACKED) or ("/" in text and ";" not in text)


def _line_with(text: str, part: str) -> int:
    return next((number for number, line in enumerate(text.splitlines(), 1) if part in line), 0)


def _invalid_toml(why: str, line: int) -> UserError:
    where = f"{PYPROJECT} line {line}" if line else PYPROJECT
    return UserError(Problem(REQUIREMENTS_INVALID, f"{where}: {why}", file=PYPROJECT, line=line))
