"""Where an embedded platform keeps its files and its sockets."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sless_cli.errors import StartFailed
from sless_cli.home import xdg_folder

SOCKET_PATH_LIMIT = 107
"""Bytes that a unix socket's path may have (sun_path of unix(7), without its closing zero)."""

_LONGEST_SOCKET = "instances/i-0123456789abcdef/instance.sock"


@dataclass(frozen=True, slots=True)
class Layout:
    """The two folders of one platform, both absolute: `data` lasts, `run` holds sockets and is made anew when lost."""

    data: Path
    run: Path

    @property
    def lock(self) -> Path:
        """Locked by the supervisor as long as it lives; its text says who that is."""
        return self.data / "lock"

    @property
    def secrets(self) -> Path:
        """Keys and passwords (0600)."""
        return self.data / "secrets.json"

    @property
    def issuer_key(self) -> Path:
        """Private key of the embedded issuer (0600)."""
        return self.data / "issuer.pem"

    @property
    def postgres(self) -> Path:
        """PostgreSQL's folder; holds one folder a major version."""
        return self.data / "postgres"

    @property
    def objects(self) -> Path:
        """Uploaded archives and build logs."""
        return self.data / "objects"

    @property
    def layers(self) -> Path:
        """Unpacked layers."""
        return self.data / "layers"

    @property
    def logs(self) -> Path:
        """Logs of the platform and of functions."""
        return self.data / "logs"

    @property
    def platform_log(self) -> Path:
        """What the services and PostgreSQL write."""
        return self.logs / "platform.log"

    @property
    def postgres_run(self) -> Path:
        """Folder of PostgreSQL's socket."""
        return self.run / "pg"

    @property
    def instances(self) -> Path:
        """One folder a running instance."""
        return self.run / "instances"

    @property
    def launcher_socket(self) -> Path:
        """Where runtime-manager reaches the launcher."""
        return self.run / "launcher.sock"

    @property
    def build_sandbox(self) -> Path:
        """Where the builder tells what builds may do."""
        return self.run / "build-sandbox.json"

    @property
    def supervisor_socket(self) -> Path:
        """Where `sless status` and `sless down` reach the supervisor."""
        return self.run / "supervisor.sock"

    def service_socket(self, name: str) -> Path:
        """Where the service of this name listens; the gateway's is numbered, as there may be several."""
        return self.run / ("gateway-1.sock" if name == "gateway" else f"{name}.sock")


def layout(data: Path | None, environ: Mapping[str, str]) -> Layout:
    """The layout for a data folder (None: `sless` in the user's XDG data folder). Makes nothing."""
    folder = (data or default_data(environ)).expanduser().absolute()
    resolved = Path(os.path.realpath(folder))
    return Layout(data=resolved, run=run_folder(resolved, environ))


def default_data(environ: Mapping[str, str]) -> Path:
    """`$XDG_DATA_HOME/sless`, as a rule ~/.local/share/sless. Raises UsageFault for a user without a home."""
    return xdg_folder(environ, "XDG_DATA_HOME", ".local/share") / "sless"


def run_folder(data: Path, environ: Mapping[str, str]) -> Path:
    """The run folder of a data folder: below `$XDG_RUNTIME_DIR` where that is ours and short enough, else below /tmp."""
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    base = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(base) and _is_own_folder(Path(base)):
        candidate = Path(base) / "sless" / digest
        if _sockets_fit(candidate):
            return candidate
    return Path(f"/tmp/sless-{os.getuid()}") / digest  # noqa: S108 - its owner and mode are checked before use


def prepare(where: Layout) -> None:
    """Make all folders, private to this user. Raises StartFailed when one cannot be made or is somebody else's."""
    _own_folder(where.data, private=False)
    for folder in (where.postgres, where.objects, where.layers, where.logs):
        _own_folder(folder, private=False)
    _own_folder(where.run.parent, private=True)
    for folder in (where.run, where.postgres_run, where.instances):
        _own_folder(folder, private=True)


def hold_run_folder(where: Layout) -> int:
    """A descriptor whose lock tells cleaners of /tmp to leave the run folder alone while it is open (tmpfiles.d(5), Age)."""
    descriptor = os.open(where.run, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _own_folder(folder: Path, *, private: bool) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise StartFailed(f"cannot make the folder {folder}: {error.strerror}; choose another with --data") from error
    if not stat.S_ISDIR(found.st_mode):
        raise StartFailed(f"{folder} is no folder: remove it or choose another place with --data")
    if found.st_uid != os.getuid() and not _is_postgres_folder(folder):
        raise StartFailed(
            f"{folder} belongs to user {found.st_uid}, not to you ({os.getuid()}): start as that user, or choose another --data"
        )
    if private and found.st_mode & 0o077:
        folder.chmod(0o700)


def _is_postgres_folder(folder: Path) -> bool:
    """As root PostgreSQL's folders are handed to its own user (see postgres.py), which checks their owner itself."""
    return os.getuid() == 0 and folder.name in {"postgres", "pg"}


def _is_own_folder(folder: Path) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _sockets_fit(run: Path) -> bool:
    return len(os.fsencode(run / _LONGEST_SOCKET)) <= SOCKET_PATH_LIMIT
