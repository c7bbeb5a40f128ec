"""The launcher's process: one loop over its clients, its instances' pipes, and the ends of their processes.

    python3 -I -S launcher/__main__.py --listen-fd N --run-dir DIR [--uid-base N] [--isolation LEVEL] …

It is started with an empty environment by the process that it belongs to, and ends with it. What it says: protocol.py.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import selectors
import signal
import socket
import struct
import sys

from . import cgroup_search, isolation, probe, protocol, sandbox, syscalls
from .admission import Admission, Machine
from .client import Client
from .fleet import Fleet
from .folder import RunFolder
from .protocol import INVALID, STOPPING, RequestError, StartSpec
from .rootfs import Roots
from .scratch import Scratch

STOP_SEC = 5.0
"""Longest grace of instances when the launcher itself is stopped."""

DEFAULT_UID_BASE = 200_000
LEVELS = ("namespaces", "landlock", "none")
_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
_UCRED = struct.Struct("3i")


class Server:
    """Serves until SIGTERM, then ends all instances."""

    def __init__(
        self, listener: socket.socket, fleet: Fleet, selector: selectors.BaseSelector, isolation: dict[str, object]
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._fleet = fleet
        self._selector = selector
        self._isolation = isolation
        self._stopping = False
        self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._signals = _catch_signals()
        selector.register(listener, selectors.EVENT_READ)
        selector.register(self._signals, selectors.EVENT_READ)

    def run(self) -> None:
        """Until stopped and empty."""
        while not (self._stopping and not len(self._fleet)):
            patience = self._fleet.pass_deadlines()
            self._turn(self._selector.select(patience))

    def _turn(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        # Nothing is closed before all that was ready has been looked at: a descriptor's number may come again at once.
        signals: set[int] = set()
        for key, mask in ready:
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._signals:
                signals.update(self._signals.recv(4096))
            elif isinstance(key.data, Client):
                self._serve(key.data, mask)
            elif isinstance(key.data, tuple):
                self._fleet.ready(*key.data)
            elif callable(key.data):
                key.data()
        if signal.SIGTERM in signals:
            self._stop()
        self._fleet.reap()
        self._tend_clients()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            self._turn_away()
            return
        if _peer_uid(connection) not in (0, os.geteuid()):
            connection.close()
            return
        client = Client(connection)
        self._fleet.clients.append(client)
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _turn_away(self) -> None:
        """No descriptor is left: take the connection with the spare one and close it, so that the loop does not spin."""
        os.close(self._spare)
        try:
            self._listener.accept()[0].close()
        except OSError:
            return
        finally:
            self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def _serve(self, client: Client, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            client.flush()
        if mask & selectors.EVENT_READ:
            for line in client.receive():
                self._answer(client, line)

    def _answer(self, client: Client, line: bytes) -> None:
        number: object = None
        try:
            request = protocol.parse(line)
            number = request.get("id")
            result = self._handle(client, request, number)
        except RequestError as error:
            client.send({"id": number, "error": error.payload()})
        except Exception as error:  # noqa: BLE001 - whatever it is, all instances end with this process
            _log(f"request failed: {error!r}")
            client.send(
                {"id": number, "error": {"code": "INTERNAL", "message": repr(error), "step": None, "errno": None}}
            )
        else:
            if result is not None:
                client.send({"id": number, "result": result})

    def _handle(self, client: Client, request: dict[str, object], number: object) -> dict[str, object] | None:
        """The result; None when the answer comes later."""
        match request.get("op"):
            case "start":
                if self._stopping:
                    raise RequestError(STOPPING, "the launcher is being stopped and starts nothing any more")
                self._fleet.start(StartSpec(request.get("spec")), (client, number))
                return None
            case "stop":
                instance_id = protocol.instance_id_of(request)
                self._fleet.stop(instance_id, protocol.grace_of(request), (client, number))
                return None
            case "list":
                return {"instances": self._fleet.alive()}
            case "isolation":
                return self._isolation
            case "follow":
                client.following = True
                self._fleet.tell_unseen(client)
                return {}
            case "seen":
                self._fleet.seen(protocol.instance_ids_of(request))
                return {}
            case op:
                raise RequestError(INVALID, f"there is no operation {op!r:.40}; protocol.py lists them")

    def _tend_clients(self) -> None:
        """Let go of those that have gone, watch for writing those that have something to read."""
        for client in list(self._fleet.clients):
            if client.closed:
                self._fleet.clients.remove(client)
                self._selector.unregister(client.connection)
                client.connection.close()
                continue
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.waits else 0)
            if self._selector.get_key(client.connection).events != wanted:
                self._selector.modify(client.connection, wanted, client)

    def _stop(self) -> None:
        self._stopping = True
        self._fleet.stop_all(STOP_SEC)


def main(arguments: list[str]) -> int:
    """The process's life; its exit code."""
    options = _options(arguments)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(
            number, signal.SIG_IGN
        )  # For the terminal's whole group; whoever started this one stops it by SIGTERM.
    os.umask(0o022)
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    tenant_base = options.uid_base if os.geteuid() == 0 else None
    try:
        run_folder = RunFolder(options.run_dir)
        confinement, reason = probe.find_confinement(tenant_base, run_folder, null, options.isolation)
        groups, no_groups = cgroup_search.find(run_folder.path, os.getppid())
        confinement.use_groups(groups)
        roots = _own_roots(run_folder) if confinement.namespaces else None
        if confinement.landlock:
            confinement.scratch = Scratch(cgroup_search.escaped(run_folder.path))
    except probe.LevelError as error:
        _log(str(error))
        return _CONFIGURATION
    except OSError as error:
        _log(f"cannot start with the run folder {options.run_dir}: {error.strerror}")
        return 1
    if not _belongs_to(options.parent_pid):
        return 0
    _prepare_for_forks()
    selector = selectors.DefaultSelector()
    machine = Machine(cgroup_search.own_memory_groups(), options.memory_reserve_mb)
    fleet = Fleet(selector, confinement, roots, run_folder, null, admission=Admission(machine))
    told = isolation.answer(confinement, "; ".join(filter(None, (reason, no_groups))))
    if not confinement.namespaces:
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    if options.ready_fd is not None:
        os.write(options.ready_fd, b"READY\n")
        os.close(options.ready_fd)
    Server(socket.socket(fileno=options.listen_fd), fleet, selector, told).run()
    if roots is not None:
        roots.close()
    if confinement.groups is not None:
        confinement.groups.close()
    if confinement.scratch is not None:
        confinement.scratch.close()
    return 0


def _own_roots(run_folder: RunFolder) -> Roots:
    sandbox.enter_own_mounts()
    return Roots(run_folder.roots)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="launcher", description="Starts function instances; see protocol.py.")
    parser.add_argument("--listen-fd", type=int, required=True, help="inherited listening unix socket")
    parser.add_argument("--run-dir", required=True, help="folder of the instances' folders; this launcher's alone")
    parser.add_argument("--uid-base", type=int, default=DEFAULT_UID_BASE, help="as root: user id of uid_index 0")
    parser.add_argument("--isolation", choices=LEVELS, help="this level or none at all; the strongest by default")
    parser.add_argument("--memory-reserve-mb", type=int, help="memory that instances leave to everything else")
    parser.add_argument("--ready-fd", type=int, help="inherited descriptor that is told when all is ready")
    parser.add_argument("--parent-pid", type=int, help="end at once unless this is the parent")
    return parser.parse_args(arguments)


def _belongs_to(parent: int | None) -> bool:
    """End with the parent from now on; False when it has ended before."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    return parent is None or os.getppid() == parent


def _prepare_for_forks() -> None:
    """Keep this process's memory to itself, and as it is: every instance begins with a copy of it."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    gc.collect()
    gc.freeze()


def _catch_signals() -> socket.socket:
    """A socket on which each signal's number comes as a byte."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, _nothing)
    return ours


def _nothing(_number: int, _frame: object) -> None:
    """The byte on the socket says it all."""


def _peer_uid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(credentials)[1])


def _log(text: str) -> None:
    sys.stderr.write(f"launcher: {text}\n")
    sys.stderr.flush()
