"""What the launcher tells an instance by its environment."""

from __future__ import annotations

import os

LISTEN_FD = "SLESS_LISTEN_FD"


class BadSettings(Exception):
    """The environment is not what the launcher should have made; `str()` is a sentence."""


class Settings:
    """Read once, at start. The listening socket's number is taken out of the environment: it is not the user's."""

    def __init__(self) -> None:
        environ = os.environ
        self.listen_fd = _number(LISTEN_FD, None)
        del environ[LISTEN_FD]
        self.code_dir = environ.get("SLESS_CODE_DIR", "")
        self.dependencies_dir = environ.get("SLESS_DEPENDENCIES_DIR", "")
        self.entrypoint = environ.get("SLESS_ENTRYPOINT", "")
        self.function = environ.get("SLESS_FUNCTION", "")
        self.namespace = environ.get("SLESS_NAMESPACE", "")
        self.instance = environ.get("SLESS_INSTANCE", "")
        self.version = _number("SLESS_VERSION", 0)
        self.max_concurrency = max(1, _number("SLESS_MAX_CONCURRENCY", 1))
        self.memory_mb = _number("SLESS_MEMORY_MB", 128)
        self.grace_sec = _number("SLESS_GRACE_MS", 10_000) / 1000


def _number(name: str, default: int | None) -> int:
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise BadSettings(f"{name} must be a whole number, not {text!r}") from None
