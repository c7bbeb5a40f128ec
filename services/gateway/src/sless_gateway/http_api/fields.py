"""What fields mean and may hold, for the API's document; the numbers come from the catalogue and the limits.

The registry judges values; what is said here is said of the types that requests are read into and answers written from.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from sless_contracts import catalog, limits

from sless_gateway.domain import Access, Kind, Phase, VersionState


def about(what: str, **schema: Any) -> msgspec.Meta:
    """A field's description, and what its JSON schema says beside its type."""
    return msgspec.Meta(description=what, extra_json_schema=schema or None)


def _between(bounds: catalog.Range) -> dict[str, int]:
    return {"minimum": bounds.low, "maximum": bounds.high}


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"


_VARIABLE_NAMES: Final = {
    "pattern": _whole(f"(?!{catalog.RESERVED_VARIABLE_PREFIX}){catalog.VARIABLE_PATTERN.pattern}"),
}
_NO_ZERO: Final = "^[^\\u0000]*$"

NAME: Final = about(
    "A DNS label, unique in the namespace over functions and services.",
    pattern=_whole(catalog.NAME_PATTERN.pattern),
    maxLength=limits.NAME_CHARS.value,
)
DISPLAY_NAME: Final = about("A name for people.", maxLength=limits.DISPLAY_NAME_CHARS.value, pattern=_NO_ZERO)
DESCRIPTION: Final = about("A text for people.", maxLength=limits.DESCRIPTION_CHARS.value, pattern=_NO_ZERO)
RUNTIME: Final = about("What the code runs on.", enum=list(catalog.RUNTIMES))
ENTRYPOINT: Final = about(
    "`module.function`.", pattern=_whole(catalog.ENTRYPOINT_PATTERN.pattern), maxLength=limits.PATH_BYTES.value
)
MEMORY_MB: Final = about(
    f"Memory of one instance in MiB; default {catalog.DEFAULT_MEMORY_MB}.", **_between(catalog.MEMORY_MB)
)
TIMEOUT_SEC: Final = about(
    f"How long a call may take, in seconds, {catalog.TIMEOUT_SEC}. Default of a function: "
    f"{catalog.DEFAULTS['function'].timeout_sec}; a service has no limit by default (null, absent or 0).",
    minimum=0,
    maximum=catalog.TIMEOUT_SEC.high,
)
ENV_VARS: Final = about("Variables for the handler; readable, so no place for secrets.", propertyNames=_VARIABLE_NAMES)
SECRET_ENV: Final = about(
    "Variables for the handler that are never shown again. A value, or the `sha256` that was read, to keep it.",
    propertyNames=_VARIABLE_NAMES,
)
REPLICAS: Final = about(
    "Bounds on instances; a bare number n means min = max = n, and 0 switches off.", **_between(catalog.REPLICAS)
)
MIN_REPLICAS: Final = about("The fewest instances.", **_between(catalog.REPLICAS))
MAX_REPLICAS: Final = about("The most instances.", **_between(catalog.REPLICAS))
CONCURRENCY: Final = about("Calls at once in one instance.", **_between(catalog.CONCURRENCY))
LABELS: Final = about(
    "Labels for people and programs.",
    maxProperties=limits.LABELS.value,
    propertyNames={"minLength": 1, "maxLength": limits.LABEL_CHARS.value, "pattern": _NO_ZERO},
)
ACCESS: Final = about("Who may call the URL: anyone, or the owner with a token.", enum=[each.value for each in Access])
ACCESS_OR_NULL: Final = about(
    "Who may call the URL: anyone (the default), or the owner with a token.",
    enum=[*(each.value for each in Access), None],
)
IDEMPOTENT: Final = about("Whether a call that may have been delivered may be sent again.")
KEPT_SHA256: Final = about("The digest that was read: the stored value is kept.", pattern="^[0-9a-f]{64}$")

ReadOnly = Annotated[Any, about("Read-only: ignored, so that what was read can be written back.")]

Time = Annotated[str, about("RFC 3339 in UTC with milliseconds.", format="date-time")]
KindName = Annotated[str, about("What it is.", enum=[each.value for each in Kind])]
PhaseName = Annotated[
    str,
    about("The outcome of the newest generation so far; Ready: the next call succeeds.", enum=[p.value for p in Phase]),
]
StateName = Annotated[str, about("How far the build is.", enum=[each.value for each in VersionState])]
Sha256 = Annotated[str, about("Hexadecimal SHA-256.", pattern="^[0-9a-f]{64}$")]
