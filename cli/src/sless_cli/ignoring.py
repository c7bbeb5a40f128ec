"""Which files of a folder are no code: `.git`, and what `.gitignore` files name, as gitignore(5) has it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pathspec

from sless_cli.errors import UsageFault

IGNORE_FILE = ".gitignore"
ALWAYS_OUT = frozenset({".git"})

Rules = list[tuple[PurePosixPath, pathspec.GitIgnoreSpec]]
"""What each folder's file says, from the top folder down."""


def ignored(path: PurePosixPath, is_folder: bool, rules: Rules) -> bool:
    """Whether the rules take the path out: those of the folder nearest to the file come last and win."""
    out = False
    for base, spec in rules:
        relative = str(path.relative_to(base)) + ("/" if is_folder else "")
        verdict = spec.check_file(relative).include
        out = out if verdict is None else verdict
    return out


def rules_in(folder: Path) -> pathspec.GitIgnoreSpec | None:
    """What the folder's own file says; None when it has none. Raises UsageFault."""
    file = folder / IGNORE_FILE
    if not file.is_file():
        return None
    try:
        text = file.read_bytes().decode(errors="replace")
    except OSError as error:
        raise UsageFault(f"cannot read {file}: {error.strerror}") from error
    return pathspec.GitIgnoreSpec.from_lines(text.splitlines())
