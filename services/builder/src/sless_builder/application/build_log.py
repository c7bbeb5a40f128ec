"""The log that a build writes: lines for its author."""

from __future__ import annotations

from typing import Final

from sless_builder.domain.build import Claim, Problem, log_end, printable
from sless_builder.ports import Queue

MAX_LOG_BYTES: Final = 1 << 20
_CUT: Final = "… truncated\n"


class BuildLog:
    """Lines of one attempt; they are stored by `flush`, or with the build's end. All attempts together have MAX_LOG_BYTES."""

    def __init__(self, queue: Queue, claim: Claim) -> None:
        self._queue = queue
        self._claim = claim
        self._left = MAX_LOG_BYTES - claim.log_bytes
        self._pending: list[str] = []
        self._end = ""

    def line(self, text: str) -> None:
        """Write a line, or several."""
        text = printable(text).rstrip("\n") + "\n"
        # Also beyond the bound: why a build failed is told whatever came before.
        self._end = log_end(self._end + text)[-4_000:] + "\n"
        if self._left <= 0:
            return
        self._left -= len(text.encode())
        self._pending.append(text if self._left > 0 else _CUT)

    def problem(self, problem: Problem) -> None:
        """Write why the build failed, with the line at fault."""
        self.line(f"error: {problem.message}")
        for line in problem.quote.splitlines():
            self.line(f"    {line}")

    async def flush(self) -> None:
        """Store what was written since. Raises LeaseLost."""
        lines = self.take()
        if not lines:
            return
        try:
            await self._queue.append_log(self._claim, lines)
        except BaseException:
            self._pending.insert(0, lines)
            raise

    def take(self) -> str:
        """What was written since, to be stored with something else."""
        text, self._pending = "".join(self._pending), []
        return text

    def end(self) -> str:
        """The log's end as a version's message."""
        return log_end(self._end)
