"""Text that an instance printed past the protocol, cut into lines."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sless_contracts.limits import LOG_LINE_BYTES

from sless_runtime_manager.ports import InstanceOutput, LogLine

_LONGEST: Final = LOG_LINE_BYTES.value


class LineCutter:
    """One instance's streams. A line that has not ended is held until it does, is too long, or the instance ends."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}

    def cut(self, output: InstanceOutput, now: datetime) -> list[LogLine]:
        """The lines that are whole now."""
        lines = []
        if output.dropped:
            lines.append(LogLine(now, output.stream, f"[{output.dropped} bytes of output were dropped here]"))
        *whole, rest = (self._held.pop(output.stream, "") + output.text).split("\n")
        while len(rest) > _LONGEST:
            whole.append(rest[:_LONGEST])
            rest = rest[_LONGEST:]
        if rest:
            self._held[output.stream] = rest
        return lines + [LogLine(now, output.stream, text.removesuffix("\r")) for text in whole]

    def end(self, now: datetime) -> list[LogLine]:
        """What is held still."""
        held, self._held = self._held, {}
        return [LogLine(now, stream, text) for stream, text in held.items()]
