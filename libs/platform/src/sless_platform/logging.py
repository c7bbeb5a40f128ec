"""Log lines: JSON on stderr, or readable ones on a terminal; secrets never, request and trace ids always.

Lines of libraries that use the standard `logging` come out the same way.
"""

from __future__ import annotations

import logging as std
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from sless_platform import tracing

Event = MutableMapping[str, Any]

REDACTED = "[redacted]"
_SECRET_KEY = re.compile(
    r"passw|passphrase|secret|token|authori[sz]ation|credential|cookie|dsn|api_?key|private|identity_key|pem\b",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"(?P<head>[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s@]+@", re.IGNORECASE)
_BEARER = re.compile(r"\b(?P<head>bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_JWT = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*")
_DEPTH = 4


def configure(service: str, level: str = "info", json: bool | None = None) -> None:
    """Set up logging of this process. `json`: None means JSON unless stderr is a terminal. May be called again."""
    as_json = not sys.stderr.isatty() if json is None else json
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _named(service),
        _traced,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = std.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=_rendering(as_json)))
    root = std.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _before_configuration() -> None:
    """What a program that never configures gets: warnings on stderr by `logging`, nothing on stdout."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            redact,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger: `log.info("layer stored", digest=…)`. The event is a short sentence; facts are keywords."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def bind(**facts: str) -> None:
    """Add facts (request_id, …) to every line that the current task and its children write from here on."""
    structlog.contextvars.bind_contextvars(**facts)


def bound(name: str) -> str | None:
    """A fact that was bound in the current task; None when it was not."""
    value = structlog.contextvars.get_contextvars().get(name)
    return value if isinstance(value, str) else None


def redact(_logger: object, _method: str, event: Event) -> Event:
    """structlog processor: values under telling names, passwords in addresses and tokens in texts become `[redacted]`."""
    for key, value in event.items():
        event[key] = REDACTED if _SECRET_KEY.search(key) else _scrubbed(value)
    return event


def _scrubbed(value: object, depth: int = 0) -> object:
    if isinstance(value, str):
        return scrub(value)
    if depth >= _DEPTH:
        return value
    if isinstance(value, dict):
        return {
            key: REDACTED if _SECRET_KEY.search(str(key)) else _scrubbed(item, depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_scrubbed(item, depth + 1) for item in value]
    return value


def scrub(text: str) -> str:
    """The text without passwords in addresses and without bearer tokens and JWTs."""
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\g<head>{REDACTED}@", text)
    if "earer" in text or "EARER" in text:
        text = _BEARER.sub(rf"\g<head>{REDACTED}", text)
    return _JWT.sub(REDACTED, text) if "eyJ" in text else text


def _rendering(as_json: bool) -> list[Any]:
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if as_json:
        return [remove, structlog.processors.format_exc_info, redact, structlog.processors.JSONRenderer(default=str)]
    # The terminal's renderer formats exceptions itself; as text they can be scrubbed.
    return [
        remove,
        structlog.processors.format_exc_info,
        redact,
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
    ]


def _named(service: str) -> Any:
    def add(_logger: object, _method: str, event: Event) -> Event:
        event["service"] = service
        return event

    return add


def _traced(_logger: object, _method: str, event: Event) -> Event:
    trace = tracing.current()
    if trace is not None:
        event["trace_id"] = trace.trace_id
        event["span_id"] = trace.span_id
    return event


_before_configuration()
