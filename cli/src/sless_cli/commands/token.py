"""`sless token`."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from sless_cli.context import layout_of_known
from sless_cli.embedded import issuer
from sless_cli.errors import UsageFault

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LONGEST = timedelta(days=3650)


@click.command("token")
@click.option("--sub", default=issuer.DEFAULT_SUB, show_default=True, help="Who the token speaks for.")
@click.option("--ttl", default="1h", show_default=True, help="How long it is valid, such as 90s, 30m, 1h, 7d.")
@click.option("--data", type=click.Path(path_type=Path), help="Data folder of the platform.")
def command(*, sub: str, ttl: str, data: Path | None) -> None:
    """Print a token for the embedded platform."""
    if not 1 <= len(sub) <= 255:
        raise UsageFault(f"--sub must have 1 to 255 characters, not {len(sub)}")
    signer = issuer.load(layout_of_known(data, os.environ).issuer_key)
    click.echo(signer.token(sub, duration(ttl), datetime.now(UTC)))


def duration(text: str, *, option: str = "--ttl") -> timedelta:
    """`90s`, `30m`, `1h`, `7d`. Raises UsageFault."""
    match = re.fullmatch(r"(\d{1,9})([smhd])", text, re.ASCII)
    length = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta()
    if not timedelta() < length <= _LONGEST:
        raise UsageFault(
            f"{option} {text!r} must be a whole number above 0 with s, m, h or d, such as 1h; at most {_LONGEST.days}d"
        )
    return length
