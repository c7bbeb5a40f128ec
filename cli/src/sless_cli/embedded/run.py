"""The embedded platform as a whole: everything that `sless up` puts together, from the lock to the last exit."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sless_cli.context import TOKEN_VARIABLE, Context, save_context
from sless_cli.embedded import issuer as issuers
from sless_cli.embedded import linux, pg_binaries, secrets
from sless_cli.embedded.control import ControlServer
from sless_cli.embedded.layout import Layout, hold_run_folder, prepare
from sless_cli.embedded.listener import endpoint_of, open_listener
from sless_cli.embedded.lock import DataLock, Holder
from sless_cli.embedded.log import PlatformLog
from sless_cli.embedded.loop import Loop
from sless_cli.embedded.pg_user import postgres_user, uid_base
from sless_cli.embedded.postgres import SUPERUSER, EmbeddedPostgres
from sless_cli.embedded.programs import (
    ServiceCode,
    launcher_options,
    launcher_program,
    migrations_program,
    postgres_programs,
    service_program,
    unix_listener,
)
from sless_cli.embedded.provision import OWNER, role_of
from sless_cli.embedded.services import POSTGRES, Service, Surroundings, has_own_issuer
from sless_cli.embedded.supervised import Program
from sless_cli.embedded.supervisor import Supervisor, status_of
from sless_cli.errors import ExitCode, StartFailed, UsageFault

START_LIMIT = timedelta(seconds=60)
FIRST_START_LIMIT = timedelta(seconds=120)
_MIB = 1024 * 1024

Report = Callable[[Mapping[str, object]], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """What a platform is made of: its services, the launcher's program, the folder of runtimes, the Python for functions.

    notes  sentences for people about these
    """

    services: Sequence[Service]
    launcher: Path
    runtimes: Path
    python311: Path | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `sless up`. `verbose`: the log goes to stderr as well; `faults`: fault points to arm, for tests."""

    host: str
    port: int
    verbose: bool = False
    faults: str = ""


class Platform:
    """One run of the embedded platform. `report` gets `{"step": name}`s, then `{"ready": {…}}` or `{"failed": sentence}`."""

    def __init__(
        self, where: Layout, parts: Parts, options: Options, environ: Mapping[str, str], report: Report
    ) -> None:
        self._where = where
        self._parts = parts
        self._options = options
        self._environ = environ
        self._report = report
        self._began = time.monotonic()

    def run(self, adopt: Mapping[int, Callable[[int], None]] | None = None) -> int:
        """Start, supervise until told to stop, stop; the exit code. `adopt`: other children to reap, by pid."""
        linux.set_name("sless-up")
        with ExitStack() as closing:
            try:
                supervisor = self._assemble(closing, adopt or {})
            except StartFailed as error:
                self._report({"failed": error.message})
                return ExitCode.FAILED
            supervisor.run()
        if supervisor.failure is not None:
            self._report({"failed": f"{supervisor.failure}\nThe whole log is in {self._where.platform_log}"})
            return ExitCode.FAILED
        if not supervisor.is_ready:
            self._report({"failed": "the start was interrupted: everything is stopped again"})
            return ExitCode.INTERRUPTED
        return ExitCode.DONE

    def _assemble(self, closing: ExitStack, adopt: Mapping[int, Callable[[int], None]]) -> Supervisor:
        """Take the lock, open everything and start; what was opened is closed in the reverse order."""
        prepare(self._where)
        lock = DataLock.take(self._where.lock, self._holder(""))
        closing.callback(lock.release)
        closing.callback(shutil.rmtree, self._where.run, ignore_errors=True)
        closing.callback(os.close, hold_run_folder(self._where))
        listener = closing.enter_context(open_listener(self._options.host, self._options.port))
        endpoint = endpoint_of(listener, self._options.host)
        lock.note(self._holder(endpoint))
        log = PlatformLog(self._where.platform_log, echo=self._options.verbose)
        closing.callback(log.close)
        loop = Loop()
        closing.callback(loop.close)
        around = self._surroundings(listener, endpoint)
        launcher_listener = closing.enter_context(unix_listener(self._where.launcher_socket))
        return self._start(closing, around, launcher_listener, loop=loop, log=log, adopt=adopt)

    def _start(
        self,
        closing: ExitStack,
        around: Surroundings,
        launcher_listener: socket.socket,
        *,
        loop: Loop,
        log: PlatformLog,
        adopt: Mapping[int, Callable[[int], None]],
    ) -> Supervisor:
        code = ServiceCode(self._parts.services)
        database = postgres_programs(around.postgres, around.secrets)
        supervisor = Supervisor(
            [*database, *self._programs(around, code, launcher_listener)],
            loop=loop,
            log=log,
            start_limit=START_LIMIT if len(database) == 1 else FIRST_START_LIMIT,
            ready=lambda: self._is_ready(around),
            step=lambda name: self._report({"step": name}),
        )
        loop.on_signals((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), lambda _number: supervisor.stop())
        control = ControlServer(
            loop,
            self._where.supervisor_socket,
            {"status": lambda: self._status(supervisor, around), "stop": lambda: _stopping(supervisor)},
        )
        closing.callback(control.close)
        for pid, ended in adopt.items():
            supervisor.adopt(pid, ended)
        # PostgreSQL starts while the services' code is imported.
        supervisor.start()
        try:
            code.load()
        except Exception as error:  # noqa: BLE001 - whatever it is, what has been started must be stopped in order
            supervisor.fail(
                f"the services' code cannot be imported: {type(error).__name__}: {error}; run `make install` again"
            )
        return supervisor

    def _programs(self, around: Surroundings, code: ServiceCode, launcher_listener: socket.socket) -> list[Program]:
        services = self._parts.services
        launcher = launcher_program(
            self._parts.launcher,
            launcher_listener,
            run=self._where.instances,
            uid_base=uid_base(self._environ),
            options=launcher_options(self._environ),
            # Not before the imports are done: the first children must find the code loaded.
            after=(POSTGRES,),
        )
        return [
            migrations_program(services, code, around),
            launcher,
            *(service_program(service, code, around, self._options.faults) for service in services),
        ]

    def _surroundings(self, listener: socket.socket, endpoint: str) -> Surroundings:
        postgres = self._postgres()
        if postgres.is_initialised() and not self._where.secrets.exists():
            raise StartFailed(
                f"{self._where.secrets} is missing, and with it the passwords of the database in {postgres.folder}: "
                f"restore it from a backup, or start with another --data"
            )
        owners = [role_of(service.name) for service in self._parts.services if service.tables]
        kept = secrets.load_or_create(
            self._where.secrets,
            services=[service.name for service in self._parts.services],
            roles=[SUPERUSER, OWNER, *owners],
        )
        return Surroundings(
            layout=self._where,
            secrets=kept,
            issuer=issuers.load_or_create(self._where.issuer_key),
            postgres=postgres,
            endpoint=endpoint,
            public_fd=listener.fileno(),
            runtimes=self._parts.runtimes,
            python311=self._parts.python311,
            environ=self._environ,
        )

    def _postgres(self) -> EmbeddedPostgres:
        binaries = pg_binaries.locate()
        postgres = EmbeddedPostgres(
            binaries=binaries,
            folder=self._where.postgres,
            run=self._where.postgres_run,
            user=postgres_user(self._environ),
            major=binaries.major_version(),
        )
        postgres.own_folders()
        return postgres

    def _is_ready(self, around: Surroundings) -> None:
        token = self._token(around)
        notes = (*self._parts.notes, *self._save_context(Context(around.endpoint, token, str(self._where.data))))
        seconds = round(time.monotonic() - self._began, 2)
        self._report(
            {
                "ready": {
                    "endpoint": around.endpoint,
                    "data_dir": str(self._where.data),
                    "seconds": seconds,
                    "token": token,
                    "notes": notes,
                }
            }
        )

    def _token(self, around: Surroundings) -> str:
        """What commands show to the platform; an issuer of the environment's gives tokens itself."""
        if has_own_issuer(self._environ):
            return self._environ.get(TOKEN_VARIABLE, "")
        return around.issuer.token(issuers.DEFAULT_SUB, issuers.CONTEXT_TTL, datetime.now(UTC))

    def _save_context(self, context: Context) -> Sequence[str]:
        """Have commands find this platform; what people should know when they will not."""
        try:
            save_context(context, self._environ)
        except (OSError, UsageFault) as error:
            return (
                f"The address and token could not be stored ({error}): commands need SLESS_ENDPOINT and SLESS_API_TOKEN.",
            )
        return ()

    def _holder(self, endpoint: str) -> Holder:
        return Holder(pid=os.getpid(), run=str(self._where.run), endpoint=endpoint)

    def _status(self, supervisor: Supervisor, around: Surroundings) -> Mapping[str, object]:
        return {
            "services": status_of(supervisor.children, _rss_mb),
            "ready": supervisor.is_ready and not supervisor.stopping,
            "endpoint": around.endpoint,
            "data_dir": str(self._where.data),
        }


def _stopping(supervisor: Supervisor) -> Mapping[str, object]:
    supervisor.stop()
    return {"stopping": True}


def _rss_mb(pid: int) -> float | None:
    """Resident memory (proc_pid_statm(5), second field); None when the process is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / _MIB, 1)
