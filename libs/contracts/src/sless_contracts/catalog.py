"""The catalogue: runtimes, ranges and defaults of functions. The only place that has them.

A test compares it with the proto comments, the REST API, the command line and whatever else repeats it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive bounds of a whole number."""

    low: int
    high: int

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime: its name in the API, and the ending of its source files."""

    name: str
    source_suffix: str


@dataclass(frozen=True, slots=True)
class KindDefaults:
    """Defaults of one kind. ``timeout_sec`` None means no limit."""

    timeout_sec: int | None
    min_replicas: int
    max_replicas: int
    concurrency: int


PYTHON_311: Final = Runtime("python3.11", ".py")
RUNTIMES: Final = {runtime.name: runtime for runtime in (PYTHON_311,)}

MEMORY_MB: Final = Range(64, 8192)
DEFAULT_MEMORY_MB: Final = 128
TIMEOUT_SEC: Final = Range(1, 900)
REPLICAS: Final = Range(0, 100)
CONCURRENCY: Final = Range(1, 1_000)
DEFAULTS: Final = {
    "function": KindDefaults(timeout_sec=30, min_replicas=0, max_replicas=10, concurrency=16),
    "service": KindDefaults(timeout_sec=None, min_replicas=1, max_replicas=1, concurrency=64),
}

FAULTS_OF_CODE: Final = frozenset({"SYNTAX_ERROR", "ENTRYPOINT_NOT_FOUND"})
"""Reasons of failed builds that code, runtime and entrypoint alone decide: the same ones would fail again. What a package index, a
limit or a machine had a part in is not among them."""

NAME_PATTERN: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NAMESPACE_PATTERN: Final = re.compile(r"sless-[0-9a-f]{16}")
ENTRYPOINT_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.[A-Za-z_][A-Za-z0-9_]*")
VARIABLE_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED_VARIABLE_PREFIX: Final = "SLESS_"


def namespace_of(sub: str) -> str:
    """The namespace of the user whom the issuer calls ``sub``: ``"sless-"`` and 16 hexadecimal digits."""
    return "sless-" + hashlib.sha256(sub.encode()).hexdigest()[:16]
