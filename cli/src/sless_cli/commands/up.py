"""`sless up`."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import click

from sless_cli.embedded.front import follow, reporter
from sless_cli.embedded.layout import Layout, layout
from sless_cli.embedded.run import Options, Parts, Platform
from sless_cli.errors import CliError, ExitCode, StartFailed
from sless_cli.installed import python311, runtimes_folder
from sless_cli.output import note, progress

Starter = Callable[[int, Mapping[int, Callable[[int], None]]], int]
"""Runs the platform to its end, given the pipe to report into and other children to reap; the exit code."""


@click.command("up")
@click.option("--data", type=click.Path(path_type=Path), help="Data folder; `sless` in the XDG data folder by default.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9090, show_default=True, help="Port to listen on; 0: a free one."
)
@click.option("--detach", is_flag=True, help="Run in the background; return when the platform is ready.")
@click.option(
    "--deploy", "code", type=click.Path(path_type=Path), help="Code to deploy as soon as the platform is ready."
)
@click.option("-v", "--verbose", is_flag=True, help="Show the platform's log on stderr, unless detached.")
@click.option("--fault", "faults", multiple=True, hidden=True, help="NAME=kill@n: arm a fault point, for tests.")
def command(
    *, data: Path | None, host: str, port: int, detach: bool, code: Path | None, verbose: bool, faults: tuple[str, ...]
) -> int:
    """Start the platform on this machine; Ctrl-C stops it all."""
    if code is not None and not code.exists():
        raise StartFailed(f"{code} is not there: give --deploy the folder with the code, or a zip of it")
    where = layout(data, os.environ)
    armed = ",".join([*faults, *filter(None, [os.environ.get("SLESS_FAULTS")])])
    options = Options(host=host, port=port, verbose=verbose and not detach, faults=armed)
    starter = platform_starter(where, options)
    stop = f"`sless down --data {where.data}` stops it all." if detach else "Ctrl-C stops it all."
    front = _front(where, code, stop=stop, watched=not options.verbose)
    return _detached(starter, front, where) if detach else _attached(starter, front)


def platform_starter(where: Layout, options: Options) -> Starter:
    """What runs the platform, given the pipe to report into and other children to reap."""

    def start(writer: int, adopt: Mapping[int, Callable[[int], None]]) -> int:
        report = reporter(writer)
        try:
            return Platform(where, installed_parts(), options, os.environ, report).run(adopt)
        except CliError as error:
            report({"failed": error.message})
            return error.exit_code
        except Exception as error:  # noqa: BLE001 - the boundary of the supervisor: told, and kept with its traceback
            kept = _keep_traceback(where)
            report({"failed": f"unexpected {type(error).__name__}: {error}; please report it, with {kept}"})
            return ExitCode.FAILED

    return start


def installed_parts() -> Parts:
    """The platform's parts as they are installed. Raises StartFailed when one is missing."""
    from sless_cli.embedded.services import SERVICES

    found, notes = python311(os.environ)
    launcher = importlib.util.find_spec("sless_runtime_manager")
    if launcher is None or launcher.origin is None:
        raise StartFailed("the package sless-runtime-manager is not installed: run `make install` again")
    return Parts(
        services=SERVICES,
        launcher=Path(launcher.origin).parent / "launcher" / "__main__.py",
        runtimes=runtimes_folder(os.environ),
        python311=found,
        notes=notes,
    )


def _attached(starter: Starter, front: Callable[[int], int]) -> int:
    """This process is the supervisor; a child of it speaks to the terminal until everything is said."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    ended: list[int] = []
    pid = _forked(lambda: front(reader), closing=writer)
    os.close(reader)
    code = starter(writer, {pid: ended.append})
    os.close(writer)
    if not ended:
        _wait_for(pid)
    if code == ExitCode.DONE:
        note("stopped; what was deployed is there again at the next start")
    return code


def _detached(starter: Starter, front: Callable[[int], int], where: Layout) -> int:
    """A child in a session of its own is the supervisor; this process returns when there is something to say."""
    reader, writer = os.pipe2(os.O_CLOEXEC)

    def supervise() -> int:
        os.setsid()
        _leave_terminal(where)
        return starter(writer, {})

    _forked(supervise, closing=reader)
    os.close(writer)
    return front(reader)


def _front(where: Layout, code: Path | None, *, stop: str, watched: bool) -> Callable[[int], int]:
    began = time.monotonic()

    def run(reader: int) -> int:
        with progress(watched=watched) as shown:
            shown.step("starting")
            ready = follow(reader, lambda name: shown.step(f"starting: {name} is ready"), log=str(where.platform_log))
        # Only here: the supervisor, of which this is a fork, stays small without an HTTP client.
        from sless_cli.welcome import welcome

        return welcome(ready, code, took=lambda: time.monotonic() - began, stop=stop)

    return run


def _forked(body: Callable[[], int], *, closing: int) -> int:
    """Fork a child that runs `body` and ends; its pid. `closing`: the end of the pipe that is not its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    # An interrupt in the middle of the fork would be told as a traceback: it waits until somebody catches it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    os.close(closing)
    _end(body, before)


def _end(body: Callable[[], int], mask: set[signal.Signals | int]) -> NoReturn:
    code: int = ExitCode.FAILED
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = body()
    except CliError as error:
        note(f"Error: {error.message}")
        code = error.exit_code
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the boundary of a process
        note(f"Error: unexpected {type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _keep_traceback(where: Layout) -> Path:
    path, descriptor = _open_words(where)
    with os.fdopen(descriptor, "a") as file:
        traceback.print_exc(file=file)
    return path


def _open_words(where: Layout) -> tuple[Path, int]:
    """The file beside the platform's log for words of the supervisor itself that nobody foresaw."""
    path = where.logs / "supervisor.log"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _leave_terminal(where: Layout) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    _, words = _open_words(where)
    os.dup2(nothing, 0)
    os.dup2(words, 1)
    os.dup2(words, 2)


def _wait_for(pid: int) -> None:
    """Let the front say its last words; what hangs is ended."""
    until = time.monotonic() + 2
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
