"""How each child of the supervisor is started: PostgreSQL, the migrations, the launcher, and a forked child a service."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from sless_cli.embedded import processes, provision
from sless_cli.embedded.postgres import SUPERUSER, EmbeddedPostgres
from sless_cli.embedded.secrets import Secrets
from sless_cli.embedded.services import LAUNCHER, MIGRATIONS, POSTGRES, Code, Service, Surroundings, compose
from sless_cli.embedded.supervised import Program, Start
from sless_cli.errors import CliError, StartFailed

_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
LEVELS = ("namespaces", "landlock", "none")
"""Of isolation, the strongest first; docs/security.md says what each is worth."""

_DEMAND = "--isolation"
INITIALISATION = "initdb"


def postgres_programs(postgres: EmbeddedPostgres, secrets: Secrets) -> list[Program]:
    """The server and, where there is no data folder yet, its making."""
    programs = []
    if not postgres.is_initialised():
        programs.append(Program(name=INITIALISATION, start=partial(_initialise, postgres, secrets), once=True))
    after = tuple(program.name for program in programs)
    programs.append(
        Program(
            name=POSTGRES,
            start=lambda given: postgres.start(given.output),
            after=after,
            probe=postgres.is_ready,
            # Fast shutdown: transactions are rolled back, clients sent away, everything written.
            stop_signal=signal.SIGINT,
            sweep=False,
            needed_last=True,
        )
    )
    return programs


def _initialise(postgres: EmbeddedPostgres, secrets: Secrets, given: Start) -> int:
    def body() -> int:
        return _sentence(lambda: postgres.initialise(secrets.database_passwords[SUPERUSER], output=1))

    return processes.fork(body, name=INITIALISATION, output=given.output)


class ServiceCode:
    """The code of all services, imported once by the parent so that children share it."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services
        self._loaded: dict[str, Code] = {}

    def load(self) -> None:
        """Import everything, and keep the collector from touching (and so copying) what is shared."""
        for service in self._services:
            self._loaded[service.name] = service.load()
        # Services run on it; importing it makes no loop.
        importlib.import_module("uvloop")
        gc.collect()
        gc.freeze()

    def __getitem__(self, name: str) -> Code:
        return self._loaded[name]

    @property
    def names(self) -> list[str]:
        """All services' names."""
        return [service.name for service in self._services]


def migrations_program(services: Sequence[Service], code: ServiceCode, around: Surroundings) -> Program:
    """Provisions the database and brings each service's schema up to date."""
    owners = [service.name for service in services if service.tables]

    def migrate() -> None:
        from sless_platform import migrations

        passwords = around.secrets.database_passwords
        provision.provision(around.postgres, services=owners, passwords=passwords)
        owner = around.postgres.dsn(provision.OWNER, passwords[provision.OWNER], provision.DATABASE)
        for name in owners:
            folder = code[name].migrations
            if folder is not None:
                migrations.apply(owner, name, folder)

    def start(given: Start) -> int:
        return processes.fork(lambda: _sentence(migrate), name=MIGRATIONS, output=given.output)

    return Program(name=MIGRATIONS, start=start, after=(POSTGRES,), once=True)


def service_program(service: Service, code: ServiceCode, around: Surroundings, faults: str) -> Program:
    """A service in a forked child. `faults` arm its first process only: the next one has to live."""

    def start(given: Start) -> int:
        values = compose(
            service,
            code[service.name],
            around,
            names=code.names,
            ready_fd=given.ready,
            faults=faults if given.first else "",
        )
        keep = (given.ready, *service.keeps(around))
        return processes.fork(
            lambda: _serve(code[service.name], values), name=f"sless-{service.name}", output=given.output, keep=keep
        )

    return Program(name=service.name, start=start, after=service.after)


def launcher_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What SLESS_ISOLATION and SLESS_MEMORY_RESERVE_MB ask of the launcher. Raises StartFailed for values that cannot be."""
    level, reserve = environ.get("SLESS_ISOLATION", ""), environ.get("SLESS_MEMORY_RESERVE_MB", "")
    if level not in {"", *LEVELS}:
        raise StartFailed(
            f"SLESS_ISOLATION={level!r} must be {', '.join(LEVELS)}, or unset for the strongest to be had"
        )
    if reserve and not (reserve.isascii() and reserve.isdecimal() and len(reserve) < 10):
        raise StartFailed(f"SLESS_MEMORY_RESERVE_MB={reserve!r} must be a number of MiB, or unset")
    demanded = (_DEMAND, level) if level else ()
    return (*demanded, "--memory-reserve-mb", reserve) if reserve else demanded


def launcher_program(
    script: Path,
    listener: socket.socket,
    *,
    run: Path,
    uid_base: int,
    options: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
) -> Program:
    """The launcher: a program of its own with an empty environment, from which instances inherit nothing.

    `options`: see `launcher_options`. Where a level of isolation is demanded and not to be had the launcher ends, and so the start.
    """
    descriptor = listener.fileno()
    arguments = [
        *("-I", "-S", str(script), "--listen-fd", str(descriptor)),
        *("--run-dir", str(run), "--uid-base", str(uid_base), "--parent-pid", str(os.getpid())),
        *options,
    ]
    is_told = _DEMAND in options

    def start(given: Start) -> int:
        keep = (descriptor, given.ready) if is_told else (descriptor,)
        ready = ("--ready-fd", str(given.ready)) if is_told else ()
        return processes.fork(
            lambda: processes.execute(sys.executable, [*arguments, *ready], {}, keep=keep),
            name=LAUNCHER,
            output=given.output,
            keep=keep,
        )

    # Its socket listens before it does; what runtime-manager sends meanwhile waits there.
    return Program(name=LAUNCHER, start=start, after=after, probe=None if is_told else lambda: True)


def unix_listener(path: Path) -> socket.socket:
    """A listening unix socket at this path, whatever was there before."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(16)
    return listener


def _serve(code: Code, values: Mapping[str, str]) -> int:
    """A service's process, from its settings to its end."""
    from sless_platform import process
    from sless_platform.errors import PlatformError
    from sless_platform.settings import SettingsError

    _forget_settings()
    try:
        process.run(code.serve, code.settings.build(**values))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return _CONFIGURATION
    except PlatformError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


def _forget_settings() -> None:
    """Whatever a service starts must not inherit the platform's variables."""
    for name in [name for name in os.environ if name.startswith("SLESS_")]:
        del os.environ[name]


def _sentence(work: Callable[[], None]) -> int:
    """Run a task; a failure that people can act on is a sentence on stderr, not a traceback."""
    from sless_platform.errors import PlatformError

    try:
        work()
    except (CliError, PlatformError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
