"""`sless function`."""

from __future__ import annotations

from sless_cli.commands.resource import commands_for

command = commands_for("function")
