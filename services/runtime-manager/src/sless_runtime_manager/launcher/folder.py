"""An instance's folder below the run folder: the way to it from outside."""

from __future__ import annotations

import fcntl
import json
import os
import socket

from .protocol import INVALID, MAX_SOCKET_PATH, RequestError

_BACKLOG = 128


class RunFolder:
    """The folder of all instances' folders; one launcher at a time."""

    def __init__(self, path: str) -> None:
        """Raises OSError: BlockingIOError when another launcher has it."""
        self.path = os.path.abspath(path)
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(error.errno, "another launcher uses it") from None
        self.roots = f"{self.path}/.roots"
        self._clear()

    def _clear(self) -> None:
        """Remove what a launcher that was killed has left."""
        for entry in os.scandir(self.path):
            if entry.is_dir(follow_symlinks=False):
                remove(entry.path)

    def folder_of(self, instance_id: str) -> str:
        """The instance's folder."""
        return f"{self.path}/{instance_id}"


def socket_path(folder: str) -> str:
    """Where the instance in `folder` is reached."""
    return f"{folder}/instance.sock"


def prepare(folder: str, note: dict[str, object]) -> int:
    """Make the folder, in it instance.json with the note, and the instance's listening socket, which only the platform's own
    user may connect to.

    The socket's descriptor. Raises OSError, RequestError for a path that is too long (unix(7)).
    """
    path = socket_path(folder)
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise RequestError(
            INVALID, f"{path} is longer than a socket's path may be ({MAX_SOCKET_PATH} bytes): use a shorter run folder"
        )
    os.mkdir(folder, mode=0o700)
    with open(f"{folder}/instance.json", "x", encoding="utf-8") as file:
        json.dump(note, file)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
        return listener.detach()


def remove(folder: str) -> None:
    """Remove the folder with the files in it. What cannot be removed now is when the next launcher begins."""
    try:
        for entry in os.scandir(folder):
            os.unlink(entry.path)
        os.rmdir(folder)
    except OSError:
        return
