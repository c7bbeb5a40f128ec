"""Why an instance did not become ready, in words for the function's author. Pure. `memory_mb` None: not known."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import Final

from sless_runtime_manager.errors import HandlerNotLoaded
from sless_runtime_manager.ports import InstanceEnded

_SHOWN_CHARS: Final = 2_000
_KILLED: Final = signal.SIGKILL


def not_loaded(error: HandlerNotLoaded, memory_mb: int | None) -> str:
    """The instance could not load the user's code."""
    return _with_end(error.message, error.detail, memory_mb)


def ended_before_ready(ended: InstanceEnded, memory_mb: int | None) -> str:
    """The instance ended before it answered its probe."""
    if ended.exceeded:
        return _with_end(f"the instance ended before it was ready: {how(ended, memory_mb)}", ended.tail, memory_mb)
    if ended.signal == _KILLED:
        sentence = f"the instance was killed before it was ready, most likely for using more than {_memory(memory_mb)}"
        return _with_end(sentence, ended.tail, memory_mb)
    return _with_end(f"the instance ended before it was ready: {how(ended, memory_mb)}", ended.tail, memory_mb)


def too_slow(limit: timedelta, tail: str, memory_mb: int | None) -> str:
    """The instance neither ended nor answered its probe in time."""
    sentence = f"the instance did not become ready within {limit.total_seconds():g} s: is loading its code endless?"
    return _with_end(sentence, tail, memory_mb)


def how(ended: InstanceEnded, memory_mb: int | None) -> str:
    """How a process ended."""
    if ended.exceeded == "memory":
        return f"it ran out of memory ({_megabytes(memory_mb)})"
    if ended.exceeded == "disk":
        return "it wrote more into its temporary folder than it may"
    if ended.signal is not None:
        return f"it was ended by signal {_signal_name(ended.signal)}"
    if ended.exit_code is not None:
        return f"it exited with code {ended.exit_code}"
    return ended.message


def _with_end(sentence: str, text: str, memory_mb: int | None) -> str:
    if "MemoryError" in text[-_SHOWN_CHARS:]:
        sentence += f" (it needed more than {_memory(memory_mb)}: set a larger memory_mb)"
    end = _end_of(text)
    return f"{sentence}\n{end}" if end else sentence


def _memory(memory_mb: int | None) -> str:
    return "its memory_mb" if memory_mb is None else f"its {memory_mb} MiB of memory"


def _megabytes(memory_mb: int | None) -> str:
    return "its memory_mb" if memory_mb is None else f"{memory_mb} MiB"


def _end_of(text: str) -> str:
    """The last lines, whole as far as they fit."""
    text = text.strip()
    if len(text) <= _SHOWN_CHARS:
        return text
    cut = text[-_SHOWN_CHARS:]
    _, newline, lines = cut.partition("\n")
    return "…\n" + (lines if newline else cut)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
