"""The log of a build, shown while it grows."""

from __future__ import annotations

from collections.abc import Callable

from sless_cli.api import DELAYS_SEC, Api
from sless_cli.errors import CliError

_QUIET_SEC = 330.0
"""Longer than a build may take without a line."""


def follow_build(
    api: Api, path: str, version: int, *, log: Callable[[str], None], note: Callable[[str], None]
) -> list[str]:
    """Pass the lines to `log` as they come, until the build ends; all of them.

    A log that breaks off is read again, from where it was. What stays broken is noted and no failure: the outcome is
    asked for afterwards.
    """
    shown: list[str] = []
    for delay in (*DELAYS_SEC, None):
        try:
            _follow(api, f"{path}/versions/{version}/build-log", shown, log)
        except CliError as error:
            if delay is None:
                note(f"the build log broke off: {error.message}")
            else:
                api.sleep(delay)
        else:
            break
    return shown


def _follow(api: Api, path: str, shown: list[str], log: Callable[[str], None]) -> None:
    known = len(shown)
    with api.stream(path, params={"follow": "1"}, timeout=_QUIET_SEC) as lines:
        for number, line in enumerate(lines):
            if number >= known:
                shown.append(line)
                log(line)
