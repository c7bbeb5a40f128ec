"""The user under which PostgreSQL runs, and the private view of the file system that this user needs.

PostgreSQL refuses root. Started by root it therefore runs under a user id of its own, which is neither root nor that of any
function. That id has no entry in /etc/passwd, which initdb wants, and may not reach a data folder below /root. Both are solved
without widening any permission: in a mount namespace of the child's own, the folders are seen below /tmp and an
/etc/passwd with the entry in it. An ordinary user without an entry (a container with an arbitrary id) gets the same file in a
user namespace.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sless_cli.embedded import linux
from sless_cli.embedded.pg_binaries import PgBinaries
from sless_cli.errors import StartFailed

DEFAULT_UID_BASE = 200_000
_VIEW = Path("/tmp")  # noqa: S108 - in the child's own mount namespace, where it is a file system of its own
_NAME = "sless-postgres"


@dataclass(frozen=True, slots=True)
class PgPlaces:
    """The programs and folders as PostgreSQL sees them."""

    binaries: PgBinaries
    data: Path
    run: Path


@dataclass(frozen=True, slots=True)
class PgUser:
    """`uid` (also the group's id); `separate`: another one than ours, which takes root."""

    uid: int
    separate: bool

    def own(self, folder: Path) -> None:
        """Hand an empty folder to the user. Raises StartFailed when it has belonged to yet another one."""
        owner = folder.stat().st_uid
        if not self.separate or owner == self.uid:
            return
        if owner != os.getuid():
            raise StartFailed(
                f"{folder} belongs to user {owner} but PostgreSQL runs as {self.uid}: set SLESS_UID_BASE={owner + 1} as before, "
                f"or run `chown -R {self.uid}:{self.uid} {folder}`"
            )
        try:
            os.chown(folder, self.uid, self.uid)
        except OSError as error:
            raise StartFailed(_advice(error, separate=True)) from error

    def become(self, places: PgPlaces) -> PgPlaces:
        """Turn this forked child into a process of the user; where it sees the places. Raises StartFailed."""
        try:
            if self.separate:
                return self._become_separate(places)
            if not _has_entry(self.uid):
                _enter_user_namespace(self.uid)
                _show_passwd(self.uid, places.run / "passwd")
        except OSError as error:
            raise StartFailed(_advice(error, separate=self.separate)) from error
        return places

    def _become_separate(self, places: PgPlaces) -> PgPlaces:
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        view = _mount_view(places)
        # Root writes below its own fresh file system, never into a folder that PostgreSQL's user could fill with links.
        _show_passwd(self.uid, _VIEW / "passwd")
        os.setgroups([])
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        os.chdir("/")
        return view


def postgres_user(environ: Mapping[str, str]) -> PgUser:
    """Ourselves, or for root the id just below those of functions (`SLESS_UID_BASE`). Raises StartFailed on a bad one."""
    if os.getuid() != 0:
        return PgUser(os.getuid(), separate=False)
    return PgUser(uid_base(environ) - 1, separate=True)


def uid_base(environ: Mapping[str, str]) -> int:
    """The first user id of functions, from SLESS_UID_BASE. Raises StartFailed when it is no usable number."""
    text = environ.get("SLESS_UID_BASE") or str(DEFAULT_UID_BASE)
    if not text.isdecimal() or not 1_000 < int(text) < 2**31:
        raise StartFailed(
            f"SLESS_UID_BASE={text!r} must be a user id from 1001 to {2**31 - 1}: unset it or choose another"
        )
    return int(text)


def _mount_view(places: PgPlaces) -> PgPlaces:
    """Cover /tmp and show the folders in it. They are opened first, as they may lie below /tmp themselves."""
    view = PgPlaces(binaries=places.binaries.moved(_VIEW / "lib"), data=_VIEW / "data", run=_VIEW / "run")
    shown = dict(zip(places.binaries.folders, view.binaries.folders, strict=True)) | {
        places.data: view.data,
        places.run: view.run,
    }
    opened = {os.open(source, os.O_PATH | os.O_DIRECTORY): target for source, target in shown.items()}
    linux.mount("tmpfs", str(_VIEW), kind="tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, options="mode=755,size=16m")
    for descriptor, target in opened.items():
        target.mkdir(mode=0o755, parents=True)
        linux.mount(f"/proc/self/fd/{descriptor}", str(target), flags=linux.MS_BIND)
        os.close(descriptor)
    return view


def _show_passwd(uid: int, file: Path) -> None:
    """Put an /etc/passwd with an entry for the id over the real one, in this mount namespace only."""
    lines = Path("/etc/passwd").read_text().splitlines()
    file.write_text("\n".join([*lines, f"{_NAME}:x:{uid}:{uid}::/:/bin/false", ""]))
    file.chmod(0o644)
    linux.mount(str(file), "/etc/passwd", flags=linux.MS_BIND)


def _enter_user_namespace(uid: int) -> None:
    gid = os.getgid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)


def _has_entry(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _advice(error: OSError, *, separate: bool) -> str:
    what = f"PostgreSQL cannot be given a user of its own ({error.strerror}: {error.filename})"
    if separate:
        return f"{what}: this root may not make mount namespaces; start sless as an ordinary user"
    return f"{what}: add an entry for user {os.getuid()} to /etc/passwd"
