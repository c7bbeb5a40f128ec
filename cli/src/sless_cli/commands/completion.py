"""`sless completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, *, shell: str) -> None:
    """Print a shell's completion script, for bash, zsh or fish.

    \b
    bash: sless completion bash > ~/.local/share/bash-completion/completions/sless
    zsh:  sless completion zsh > "${fpath[1]}/_sless"
    fish: sless completion fish > ~/.config/fish/completions/sless.fish

    Commands, options, and the names of your functions and services are completed.
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows the shells of the choice"  # noqa: S101
    click.echo(found(context.find_root().command, {}, "sless", "_SLESS_COMPLETE").source())
