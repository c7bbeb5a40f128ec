"""For a zygote of the launcher, an interpreter that forks instances from itself: `prepare` imports ahead what instances use,
`rehearse` makes a fork ready while it waits, `run` begins in it, where everything else (variables, arguments, rights) is already as
main.py would find it.

The user's code must not notice: what it imports is found where it would be found without this.
"""

from __future__ import annotations

import importlib
import os
import sys

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

_RUNTIME = (
    "start",
    "rehearsal",
    "aio",
    "event",
    "forms",
    "answers",
    "values",
    "jsontext",
    "failures",
    "threads",
    "driving",
)
# What most handlers import, and what asyncio brings; no module that opens anything or reads the environment when it is imported.
_LIBRARY = (
    *("asyncio", "base64", "binascii", "bisect", "calendar", "collections", "collections.abc", "concurrent.futures.thread"),
    *("contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "email.message", "email.parser", "email.utils", "enum"),
    *("fnmatch", "functools", "glob", "hashlib", "heapq", "hmac", "html", "http", "http.client", "inspect", "io", "ipaddress"),
    *("itertools", "json", "logging", "math", "mimetypes", "operator", "os.path", "pathlib", "queue", "random", "re", "secrets"),
    *("shutil", "signal", "socket", "statistics", "string", "struct", "subprocess", "tempfile", "textwrap", "threading", "time"),
    *("traceback", "types", "typing", "unicodedata", "urllib.error", "urllib.parse", "urllib.request", "uuid", "warnings"),
    *("weakref", "zlib", "zoneinfo"),
)  # fmt: skip

_ahead: set[str] = set()
"""Names of modules that only this imported: without it they would not be there yet when the user's code is loaded."""


def prepare() -> None:
    """Import everything; in the zygote, once."""
    importlib.import_module("sless_runtime.start")
    before = set(sys.modules)
    for name in _RUNTIME:
        importlib.import_module(f"sless_runtime.{name}")
    for name in _LIBRARY:
        importlib.import_module(name)
    _ahead.update(name for name in set(sys.modules) - before if not name.startswith("sless_runtime"))


def rehearse() -> None:
    """Do once for nothing what will have to be done; in the zygote, whose code is faster then, and in each fork."""
    from .rehearsal import rehearse as rehearse_start

    rehearse_start()
    _forget_shadowed("/")


def run() -> None:
    """As main.py."""
    from .start import main

    _take_locale()
    sys.modules["__main__"] = _main_module()
    for folder in (os.environ.get("SLESS_CODE_DIR"), os.environ.get("SLESS_DEPENDENCIES_DIR")):
        if folder:
            _forget_shadowed(folder)
    main()


def _take_locale() -> None:
    """What the interpreter does when it starts, where the variables say something other than the zygote's."""
    if any(name in os.environ for name in ("LC_ALL", "LC_CTYPE")) or os.environ.get("LANG") != "C.UTF-8":
        import _locale

        try:
            _locale.setlocale(_locale.LC_CTYPE, "")
        except _locale.Error:  # type: ignore[attr-defined]
            return


def _main_module() -> ModuleType:
    module = type(sys)("__main__")
    module.__file__ = sys.argv[0]
    module.__builtins__ = sys.modules["builtins"]  # type: ignore[attr-defined]
    return module


def _forget_shadowed(folder: str) -> None:
    """The user's `queue.py` is what `import queue` finds, in the user's code."""
    try:
        names = {entry.partition(".")[0] for entry in os.listdir(folder)} & _ahead
    except OSError:
        return  # The loader says what is wrong with it.
    for name in names:
        for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
            del sys.modules[loaded]
