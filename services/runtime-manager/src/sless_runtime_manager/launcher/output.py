"""What an instance prints past the instance protocol."""

from __future__ import annotations

import codecs

TAIL_BYTES = 64 << 10
_BURST_BYTES = 1 << 20
_BYTES_PER_SEC = 256 << 10


class Output:
    """The last bytes of it, as text, and how much of it may be passed on (a token bucket): one instance that prints without end
    must not take the launcher's time from the others."""

    def __init__(self, now: float) -> None:
        """`now` is a monotonic time in seconds, as in `take`."""
        self._tail = bytearray()
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
        self._budget = float(_BURST_BYTES)
        self._counted_at = now

    def take(self, stream: str, chunk: bytes, now: float) -> str | None:
        """Keep `chunk` of `stdout` or `stderr`; its text, or None when it may not be passed on."""
        self._tail += chunk
        del self._tail[:-TAIL_BYTES]
        self._budget = min(self._budget + (now - self._counted_at) * _BYTES_PER_SEC, _BURST_BYTES)
        self._counted_at = now
        text = self._decoders[stream].decode(chunk)
        if len(chunk) > self._budget:
            return None
        self._budget -= len(chunk)
        return text

    @property
    def tail(self) -> str:
        """The end of all that was printed, at most TAIL_BYTES, both streams as they came."""
        return self._tail.decode("utf-8", "replace")
