"""How a step is kept apart from everything else: by bubblewrap or, where that is not allowed, by its user and limits alone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from sless_platform.errors import Unavailable

from sless_builder.adapters.bubblewrap import Bubblewrap, View
from sless_builder.domain.steps import Step

_TMP_BYTES: Final = 256 << 20
_PASS: Final = 0o011


class Confinement(Protocol):
    """One way to keep steps apart."""

    @property
    def private(self) -> bool:
        """Whether a step's processes are in namespaces of their own; else a keeper looks after them."""
        ...

    def room(self, step: Step) -> AbstractContextManager[Step]:
        """The step as it is to be run, for the time of the block. Blocks. Raises Unavailable."""
        ...

    def command(self, step: Step, inside: Sequence[str], *, programs: Sequence[Path], status: int) -> list[str]:
        """The command that runs `inside`, which needs `programs` beside what the step is shown. `status`: see step_process."""
        ...


class Namespaces:
    """By bubblewrap."""

    private = True

    def __init__(self, bubblewrap: Bubblewrap, *, uid: int | None) -> None:
        self._bubblewrap = bubblewrap
        self._uid = uid

    @contextmanager
    def room(self, step: Step) -> Iterator[Step]:
        """See Confinement."""
        _give(step.writable, self._uid)
        yield step

    def command(self, step: Step, inside: Sequence[str], *, programs: Sequence[Path], status: int) -> list[str]:
        """See Confinement."""
        view = View((*step.shown, *programs), step.writable, step.network, _TMP_BYTES)
        return self._bubblewrap.command(view, inside, more=("--json-status-fd", str(status)))


class UserAlone:
    """By a user of its own, as root, and by limits: what that user may read it can read, and it has the machine's network.

    root: the folder that holds steps' folders; what is above must be open to everybody.
    """

    private = False

    def __init__(self, root: Path, *, uid: int | None) -> None:
        self._root = root
        self._uid = uid

    @contextmanager
    def room(self, step: Step) -> Iterator[Step]:
        """See Confinement. There is no /tmp of its own: what honours TMPDIR is counted, and gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self._root, ignore_cleanup_errors=True) as tmp:
            folders = (*step.writable, Path(tmp))
            _give(folders, self._uid)
            if self._uid is not None:
                for path in (*folders, *step.shown):
                    self._open(path)
            yield replace(step, writable=folders, env={**step.env, "TMPDIR": tmp})

    def command(self, step: Step, inside: Sequence[str], *, programs: Sequence[Path], status: int) -> list[str]:
        """See Confinement."""
        if self._uid is not None:
            for path in programs:
                self._open(path)
        return [*inside]

    def _open(self, path: Path) -> None:
        """Let the user pass to `path`."""
        for parent in path.parents:
            mode = parent.stat().st_mode
            if mode & _PASS == _PASS:
                continue
            if not parent.is_relative_to(self._root):
                raise Unavailable(f"builds run as a user who may not enter {parent}, where {path.name} is")
            parent.chmod(mode | _PASS)


def _give(folders: Sequence[Path], uid: int | None) -> None:
    """Make folders, and what is in them, the user's."""
    if uid is None:
        return
    for folder in folders:
        os.chown(folder, uid, uid, follow_symlinks=False)
        for parent, names, files in os.walk(folder):
            for name in (*names, *files):
                os.chown(os.path.join(parent, name), uid, uid, follow_symlinks=False)
