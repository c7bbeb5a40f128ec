"""PostgreSQL of the embedded platform: made once, started on a unix socket alone, ready again after any kind of end."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sless_cli.embedded import linux, pg_orphans, processes
from sless_cli.embedded.files import sync_folder
from sless_cli.embedded.pg_binaries import PgBinaries
from sless_cli.embedded.pg_user import PgPlaces, PgUser
from sless_cli.errors import StartFailed

SUPERUSER = "postgres"
PORT = 5432  # of the socket's name alone: nothing listens on TCP
_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}

# Durability stays as PostgreSQL has it (fsync, full_page_writes, synchronous_commit). The rest suits one small machine:
# no replication, hence little WAL and no processes for it.
_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": str(PORT),
    "max_connections": "80",
    "shared_buffers": "32MB",
    "jit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "min_wal_size": "16MB",
    "max_wal_size": "256MB",
    "io_method": "sync",
    "max_worker_processes": "2",
    "max_parallel_workers": "0",
    "max_parallel_workers_per_gather": "0",
    "max_logical_replication_workers": "0",
    "autovacuum_max_workers": "2",
    "huge_pages": "off",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %u@%d ",
    # Passwords never stand in a statement that could be logged (see provision.py), other values may.
    "log_min_error_statement": "panic",
    "password_encryption": "scram-sha-256",
}


@dataclass(frozen=True, slots=True)
class EmbeddedPostgres:
    """folder  holds one data folder a major version
    run     folder of the socket
    """

    binaries: PgBinaries
    folder: Path
    run: Path
    user: PgUser
    major: int

    @property
    def data(self) -> Path:
        """The data folder of this major version."""
        return self.folder / str(self.major)

    def dsn(self, role: str, password: str, database: str) -> str:
        """Address for asyncpg and libpq: the socket, with the password in it; for memory only."""
        return f"postgresql://{role}:{quote(password, safe='')}@/{database}?host={quote(str(self.run), safe='')}&port={PORT}"

    def is_initialised(self) -> bool:
        """Whether the data folder is there. Raises StartFailed when only one of another major version is."""
        if (self.data / "PG_VERSION").exists():
            return True
        others = [path.parent.name for path in self.folder.glob("*/PG_VERSION") if path.parent.name.isdecimal()]
        if others:
            raise StartFailed(
                f"{self.folder} was made by PostgreSQL {others[0]}, installed is {self.major}: "
                f"install the release of sless that made it, or start with another --data"
            )
        return False

    def initialise(self, superuser_password: str, *, output: int) -> None:
        """Make the data folder: whole or not at all. Raises StartFailed with what initdb's exit says; its words go to `output`."""
        self.own_folders()
        # A name of its own: what an earlier start left behind may be in its last moments still.
        unfinished = self.folder / f"{self.major}.new-{os.getpid()}"
        pid = processes.fork(lambda: self._initdb(unfinished.name, superuser_password), name="initdb", output=output)
        code = processes.wait_status(pid)
        if code != 0:
            raise StartFailed(f"initdb ended with exit code {code}")
        unfinished.rename(self.data)
        sync_folder(self.folder)
        for leftover in self.folder.glob(f"{self.major}.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def own_folders(self) -> None:
        """Hand PostgreSQL's folders to its user. Raises StartFailed when one is another user's."""
        for folder in (self.folder, self.run):
            self.user.own(folder)

    def clear_leftovers(self) -> None:
        """Stop an earlier server of this data folder and remove its marks. Raises StartFailed when it does not end."""
        pg_orphans.clear(self.data, self.run)

    def start(self, output: int) -> int:
        """Start the server; its pid. It is asked to shut down (fast) when this process ends."""
        self.clear_leftovers()
        return processes.fork(self._serve, name="postgres", output=output)

    def is_ready(self) -> bool:
        """Whether connections are taken: the server writes so into its pid file (line 8, as pg_ctl reads it)."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def _places(self) -> PgPlaces:
        return PgPlaces(binaries=self.binaries, data=self.folder, run=self.run)

    def _initdb(self, name: str, superuser_password: str) -> int:
        # In memory: the password is in no file, argument or environment.
        parent = os.getppid()
        password = os.memfd_create("password", 0)
        os.write(password, superuser_password.encode())
        os.fchown(password, self.user.uid, -1)
        seen = self.user.become(self._places())
        arguments = [
            f"--pgdata={seen.data / name}",
            f"--username={SUPERUSER}",
            f"--pwfile=/proc/self/fd/{password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--sync-method=syncfs",
            # Small segments: 16 MiB less to write at the first start, and to keep.
            "--wal-segsize=4",
            "--no-instructions",
        ]
        linux.die_with_parent(signal.SIGKILL, parent)
        processes.execute(str(seen.binaries.initdb), arguments, _ENVIRONMENT, keep=(password,))

    def _serve(self) -> int:
        parent = os.getppid()
        seen = self.user.become(self._places())
        settings = {**_SETTINGS, "unix_socket_directories": str(seen.run)}
        arguments = [f"-D{seen.data / self.data.name}", *(f"-c{name}={value}" for name, value in settings.items())]
        linux.die_with_parent(signal.SIGINT, parent)
        processes.execute(str(seen.binaries.postgres), arguments, _ENVIRONMENT)
