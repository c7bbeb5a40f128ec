"""Names that a shell may complete: silent and quick, whatever the platform does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import click

LIMIT_SEC = 1.0
"""How long one request of a completion may take; a person waits at the prompt."""

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _completer(*kinds: str) -> Completer:
    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        try:
            return sorted(name for name in _names(kinds) if name.startswith(incomplete))
        except Exception:  # noqa: BLE001 - the boundary: at a prompt no fault is of use to anybody
            return []

    return complete


def _names(kinds: tuple[str, ...]) -> Iterator[str]:
    # Only when names are asked for: completing a command or an option must not load an HTTP client.
    from sless_cli.api import resource_path
    from sless_cli.context import load_context
    from sless_cli.transport import http_client

    context = load_context(os.environ)
    headers = {"Authorization": f"Bearer {context.token}"}
    with http_client(context.endpoint) as client:

        def get(path: str) -> object:
            return client.get(context.endpoint + path, headers=headers, timeout=LIMIT_SEC).json()

        whoami = get("/v1/whoami")
        assert isinstance(whoami, dict)  # noqa: S101 - any fault ends in no names
        for kind in kinds:
            listed = get(resource_path(str(whoami["namespace"]), kind))
            yield from (
                (str(each["name"]) for each in listed if isinstance(each, dict)) if isinstance(listed, list) else ()
            )


any_name = _completer("service", "function")
"""Completes the name of a function or service."""


def name_of(kind: str) -> Completer:
    """Completes the name of a resource of this kind."""
    return _completer(kind)
