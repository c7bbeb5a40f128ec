"""Temporary folders of instances at level `landlock`, where no private /tmp can be shown to them.

They lie in the machine's /tmp, in a folder of this launcher's, and are removed by a program of the machine: what an instance made in
one (a tree deeper than any path is long, folders that nobody may enter) must not hold or break the launcher.
"""

from __future__ import annotations

import os
import stat

_PARENT = "/tmp"  # noqa: S108 - what is made there has a name of its own and an owner that is looked at
_REMOVE = 'chmod -R u+rwx -- "$1" 2>/dev/null; exec rm -rf -- "$1"'


class Scratch:
    """The folders of one run folder's instances."""

    def __init__(self, run_name: str) -> None:
        """`run_name` names the run folder. Raises OSError, also when somebody else took the name before."""
        self._own = f"{_PARENT}/sless-scratch-{os.geteuid()}"
        self.path = f"{self._own}/{run_name}"
        for folder in (self._own, self.path):
            _make_own(folder)
        self._late: list[str] = []
        for entry in os.scandir(self.path):
            os.waitpid(_remove(entry.path), 0)  # Of a launcher that was killed.

    def create(self, instance_id: str, user: int | None) -> str:
        """A folder that only `user` (None: this process's) may enter. Raises OSError."""
        folder = f"{self.path}/{instance_id}"
        os.mkdir(folder, mode=0o700)
        if user is not None:
            os.chown(folder, user, user)
        return folder

    def remove(self, folder: str) -> list[int]:
        """Begin to remove an instance's folder with all in it; the pids of the programs that do so, this process's children.

        Where no process can be had it is done at the next call, at `close` at the latest.
        """
        pids = []
        for path in (*self._late, folder):
            try:
                pids.append(_remove(path))
            except OSError:
                self._late = [*(one for one in self._late if one != path), path]
            else:
                self._late = [one for one in self._late if one != path]
        return pids

    def close(self) -> None:
        """Remove everything."""
        os.waitpid(_remove(self.path), 0)
        try:
            os.rmdir(self._own)
        except OSError:
            return  # Another platform's are there.


def _remove(folder: str) -> int:
    return os.posix_spawn("/bin/sh", ["sh", "-c", _REMOVE, "sh", folder], {"PATH": "/usr/bin:/bin"}, setsigmask=())


def _make_own(folder: str) -> None:
    try:
        os.mkdir(folder, mode=0o711)
    except FileExistsError:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(1, "it is somebody else's", folder) from None
    os.chmod(folder, 0o711)  # noqa: S103 - other users' instances pass through to their own
