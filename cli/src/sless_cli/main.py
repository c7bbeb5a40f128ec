"""`sless`: the command line's entry point, and the boundary at which every failure becomes one sentence."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from sless_cli.errors import CliError, ExitCode

# Command → module below sless_cli.commands; each has a click command `command`. Loaded only when it is called or listed.
_COMMANDS = ("up", "down", "status", "token", "deploy", "function", "service", "invoke")
_DEBUG = "--debug"


class _Commands(click.Group):
    """Loads a command's module when it is asked for, so that `sless invoke` does not import a platform."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        loaded = importlib.import_module(f"sless_cli.commands.{cmd_name}").command
        return loaded if isinstance(loaded, click.Command) else None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(_DEBUG, is_flag=True, help="Show tracebacks; may stand anywhere on the line.")
@click.version_option(package_name="sless-cli", prog_name="sless")
def sless(*, debug: bool) -> None:
    """Functions on a platform of your own."""


def main() -> None:
    """Run the command line of this process and end it."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code. What went wrong is said on stderr."""
    debug = _DEBUG in arguments
    try:
        result = sless.main([word for word in arguments if word != _DEBUG], prog_name="sless", standalone_mode=False)
    except Exception as error:
        if debug:
            raise
        return _explain(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return result if isinstance(result, int) else ExitCode.DONE


def _explain(error: Exception) -> int:
    if isinstance(error, CliError):
        _say(error.message)
        return error.exit_code
    if isinstance(error, click.Abort):
        return ExitCode.INTERRUPTED
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        # The reader of our output has enough (`sless service list | head -1`).
        sys.stderr.close()
        return ExitCode.FAILED
    _say(f"unexpected {type(error).__name__}: {error}. Run it again with {_DEBUG} to see where, and please report that")
    return ExitCode.FAILED


def _say(message: str) -> None:
    click.echo(f"Error: {message}", err=True)
