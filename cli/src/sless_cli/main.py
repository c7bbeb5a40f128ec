"""`sless`: the command line's entry point, and the boundary at which every failure becomes one sentence."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from sless_cli.errors import CliError, ExitCode

# Command → its first words of help. The module of that name (`_` for `-`) below sless_cli.commands has a click command
# `command`, and is loaded only when that command is called: help and completion come at once.
COMMANDS = {
    "up": "Start the platform on this machine; Ctrl-C stops it all.",
    "down": "Stop the platform and wait until it has stopped.",
    "status": "Show what runs, and how well functions are kept apart.",
    "token": "Print a token for the embedded platform.",
    "api-key": "Make, list and revoke API keys: tokens for programs.",
    "dev": "Run a folder on this machine, with the new code as soon as it is saved.",
    "deploy": "Put the code in PATH (a folder or a zip) behind a URL.",
    "function": "List, show and delete functions.",
    "service": "List, show and delete services.",
    "invoke": "Call a function or service.",
    "versions": "List the versions of a function or service, newest first.",
    "activate": "Let a built version serve, older or newer.",
    "rollback": "Go back to the built version before the one that serves.",
    "source": "Show or save the code of a function or service, as it was uploaded.",
    "completion": "Print a shell's completion script, for bash, zsh or fish.",
}
_DEBUG = "--debug"


class _Commands(click.Group):
    """Loads a command's module when it is asked for, so that `sless invoke` does not import a platform."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        loaded = importlib.import_module(f"sless_cli.commands.{cmd_name.replace('-', '_')}").command
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
