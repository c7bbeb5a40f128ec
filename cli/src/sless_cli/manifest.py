"""sless.toml: a function's configuration beside its code, by the field names of the REST API."""

from __future__ import annotations

import tomllib
from typing import Any

from sless_cli.errors import UsageFault

WRITABLE = (
    "display_name", "description", "runtime", "entrypoint", "memory_mb", "timeout_sec", "env_vars", "secret_env", "replicas",
    "labels", "access", "idempotent",
)  # fmt: skip
"""Fields of a function or service that a caller may set, beside its name."""

KINDS = ("function", "service")


def parse_manifest(text: str) -> dict[str, Any]:
    """The fields that are set. Raises UsageFault on bad TOML and on names that the REST API does not have."""
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageFault(f"sless.toml is no valid TOML: {error}") from error
    unknown = sorted(fields.keys() - {"name", "kind", *WRITABLE})
    if unknown:
        raise UsageFault(
            f"sless.toml has unknown fields ({', '.join(unknown)}); there are name, kind, {', '.join(WRITABLE)}"
        )
    if fields.get("kind", KINDS[0]) not in KINDS:
        raise UsageFault(f"kind in sless.toml must be function or service, not {fields['kind']!r}")
    return fields
