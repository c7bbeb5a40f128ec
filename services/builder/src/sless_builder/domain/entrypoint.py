"""Where the file of an entrypoint's module must lie."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from sless_builder.errors import ArchiveInvalid

_SHOWN: Final = 10


def module_of(entrypoint: str) -> str:
    """`pkg.handler.handle` → `pkg.handler`."""
    return entrypoint.rpartition(".")[0]


def module_files(entrypoint: str, suffix: str = ".py") -> tuple[str, str]:
    """The paths that the module's file may have, the usual one first: `pkg/handler.py`, `pkg/handler/__init__.py`."""
    path = module_of(entrypoint).replace(".", "/")
    return path + suffix, f"{path}/__init__{suffix}"


def find_module(entrypoint: str, paths: Collection[str]) -> str | None:
    """The module's file among the paths: a package before a plain file, as Python's import takes them."""
    plain, package = module_files(entrypoint)
    return next((path for path in (package, plain) if path in paths), None)


def require_module(entrypoint: str, paths: Collection[str]) -> str:
    """As find_module. Raises ArchiveInvalid that says what was looked for and what is there."""
    found = find_module(entrypoint, paths)
    if found is None:
        raise ArchiveInvalid(f"code has {missing(entrypoint, paths)}")
    return found


def missing(entrypoint: str, paths: Collection[str]) -> str:
    """What to say when no path is the module's file."""
    plain, _ = module_files(entrypoint)
    return f"no {plain}, which the entrypoint {entrypoint} needs; {_found(plain, paths)}"


def _found(plain: str, paths: Collection[str]) -> str:
    tops = {path.partition("/")[0] for path in paths}
    if len(tops) == 1 and (folder := tops.pop()) + "/" + plain in paths:
        return f"it lies in folder {folder}/: zip the folder's contents, not the folder"
    alike = next((path for path in sorted(paths) if path.casefold() == plain.casefold()), None)
    if alike is not None:
        return f"there is {alike}: capital and small letters differ"
    return f"it has {_listed(sorted(paths, key=lambda path: (path.count('/'), path)))}"


def _listed(paths: Iterable[str]) -> str:
    listed = list(paths)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
