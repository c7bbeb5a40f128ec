"""`sys.stdout` and `sys.stderr` of the user's code: text goes to the log of the call that prints it.

Who prints is known from a context variable (calls and asyncio tasks), from the thread's starter (threads that a
handler starts) or from the submitter (thread pools). What nobody is known for goes to the instance's own log.
Writes to the file descriptors themselves pass by: the launcher has them.
"""

from __future__ import annotations

import io
import os
import sys
from contextvars import ContextVar

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .logs import LineLog

    LogSource = Callable[[], LineLog]

_current: ContextVar[LogSource | None] = ContextVar("sless_call", default=None)
_THREAD_ATTRIBUTE = "_sless_call"


def attribute_to(source: LogSource) -> None:
    """What the running context prints from now on belongs to `source`."""
    _current.set(source)


class _Streams:
    """Both streams, and where unattributed text goes; the fallback is None in a forked child."""

    def __init__(self) -> None:
        self.fallback: LineLog | None = None

    def write(self, stream: str, text: str) -> None:
        if self.fallback is None:
            os.write(1 if stream == "stdout" else 2, text.encode("utf-8", "backslashreplace"))
            return
        source = _current.get() or _of_thread()
        log = source() if source is not None else self.fallback
        log.write(stream, text)

    def forget(self) -> None:
        """In a forked child there is no connection: print to the file descriptors."""
        self.fallback = None


_streams = _Streams()


class _Bytes(io.BufferedIOBase):
    """`sys.stdout.buffer`."""

    def __init__(self, stream: _Text) -> None:
        self._stream = stream
        self.name = stream.name
        self.mode = "wb"

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._stream.write(raw.decode("utf-8", "replace"))
        return len(raw)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        """A print after `sys.stdout.close()` in some handler must not fail in all later ones."""


class _Text(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`."""

    def __init__(self, name: str, number: int) -> None:
        self._name = name
        self._number = number
        self.name = f"<{name}>"
        self.mode = "w"
        self.buffer = _Bytes(self)
        self.line_buffering = True
        self.write_through = True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        _streams.write(self._name, text)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def reconfigure(self, **_: object) -> None:
        """Encoding and buffering stay as they are."""

    def close(self) -> None:
        """As of `_Bytes`."""


def in_child() -> bool:
    """Whether this process was forked from the instance."""
    return _streams.fallback is None


def install(fallback: LineLog) -> None:
    """Replace `sys.stdout` and `sys.stderr`; `fallback` takes what cannot be attributed."""
    _streams.fallback = fallback
    sys.stdout = _Text("stdout", 1)
    sys.stderr = _Text("stderr", 2)
    os.register_at_fork(after_in_child=_streams.forget)


def print_unattributed(text: str) -> None:
    """To the instance's own log, as a standard error."""
    if _streams.fallback is not None:
        _streams.fallback.write("stderr", text)


def follow_threads() -> None:
    """Attribute what threads print to the call that started them, once `threading` is loaded."""
    import threading

    start = threading.Thread.start

    def start_attributed(self: threading.Thread) -> None:
        # A pool's threads live on and work for others: their work is attributed piece by piece.
        module = getattr(getattr(self, "_target", None), "__module__", None)
        if module != "concurrent.futures.thread":
            setattr(self, _THREAD_ATTRIBUTE, _current.get() or _of_thread())
        start(self)

    threading.Thread.start = start_attributed  # type: ignore[method-assign]


def follow_pools() -> None:
    """Attribute what a thread pool's work prints to the call that submitted it, if the user has loaded pools."""
    pools = sys.modules.get("concurrent.futures.thread")
    if pools is None:
        return
    submit = pools.ThreadPoolExecutor.submit

    def submit_attributed(self: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        source = _current.get() or _of_thread()
        if source is None:
            return submit(self, function, *args, **kwargs)
        return submit(self, _attributed, source, function, args, kwargs)

    pools.ThreadPoolExecutor.submit = submit_attributed


def _attributed(source: LogSource, function: Any, args: Any, kwargs: Any) -> Any:
    token = _current.set(source)
    try:
        return function(*args, **kwargs)
    finally:
        _current.reset(token)


def _of_thread() -> LogSource | None:
    threading = sys.modules.get("threading")
    if threading is None:
        return None
    return getattr(threading.current_thread(), _THREAD_ATTRIBUTE, None)
