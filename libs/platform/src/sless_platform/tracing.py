"""Which trace the work at hand belongs to: W3C Trace Context (https://www.w3.org/TR/trace-context/).

It flows with every call whether spans are made or not, so that log lines and handlers know their trace.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

_TRACEPARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.ASCII
)
_LENGTH = 55
_STATE_MEMBER = re.compile(r"[ \t]*[a-z0-9][a-z0-9_\-*/@]{0,255}=[ -+\--<>-~]{1,256}[ \t]*", re.ASCII)
_STATE_MEMBERS = 32
_STATE_CHARS = 4_096


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace, and the place in it under which stands what is done next.

    traceparent  as it is sent on, of version 00.
    tracestate   what tracing systems of the callers added; passed on as it is.
    """

    traceparent: str
    tracestate: str = ""

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits."""
        return self.traceparent[36:52]

    @property
    def sampled(self) -> bool:
        """Whether whoever began the trace wants its spans."""
        return bool(int(self.traceparent[53:], 16) & 1)


_CURRENT: ContextVar[Trace | None] = ContextVar("trace", default=None)


def begin(*, ratio: float) -> Trace:
    """A new trace; a share of `ratio` of them is sampled."""
    sampled = "01" if random.random() < ratio else "00"  # noqa: S311 - an identity, no secret
    return Trace(f"00-{_identity(128):032x}-{_identity(64):016x}-{sampled}")


def parse(traceparents: Sequence[str], tracestates: Sequence[str] = ()) -> Trace | None:
    """The trace that a caller sent, each header as often as it came; None when it did not, or not as the standard says (§3.2)."""
    if len(traceparents) != 1:
        return None
    text = traceparents[0].strip(" \t")
    match = _TRACEPARENT.fullmatch(text)
    if match is None or (match[1] == "00" and len(text) != _LENGTH):
        return None
    # A later version is understood as far as version 00 goes (§4.3), and of its flags only what that defines.
    sent = text if match[1] == "00" else f"00{text[2:53]}{int(text[53:_LENGTH], 16) & 1:02x}"
    return Trace(sent, _state(tracestates))


def kept(traceparent: str) -> Trace | None:
    """The trace of work that was asked for earlier, as it was kept; None for ""."""
    return parse([traceparent])


def current() -> Trace | None:
    """The trace of the task at hand."""
    return _CURRENT.get()


def traceparent() -> str:
    """The current trace as it is sent on; "" without one."""
    trace = _CURRENT.get()
    return "" if trace is None else trace.traceparent


def enter(trace: Trace | None) -> None:
    """What the current task and its children do from here on belongs to this trace."""
    _CURRENT.set(trace)


@contextmanager
def within(trace: Trace | None) -> Iterator[None]:
    """What a block does belongs to this trace; None: to none."""
    token = _CURRENT.set(trace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _state(headers: Sequence[str]) -> str:
    """The members of all headers in one; "" when they are not as the standard says, which harms the trace no further (§3.3)."""
    if not headers:
        return ""
    members = [member.strip(" \t") for header in headers for member in header.split(",")]
    members = [member for member in members if member]
    whole = ",".join(members)
    fits = len(members) <= _STATE_MEMBERS and len(whole) <= _STATE_CHARS
    keys = {member.partition("=")[0] for member in members}
    valid = fits and len(keys) == len(members) and all(map(_STATE_MEMBER.fullmatch, members))
    return whole if valid else ""


def _identity(bits: int) -> int:
    """Not 0, which names nothing."""
    return random.getrandbits(bits) or 1
