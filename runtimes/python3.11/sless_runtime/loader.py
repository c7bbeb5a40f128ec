"""Finds the user's handler: `module.function`, `package.module.function`, also with a hyphen in a file's name."""

from __future__ import annotations

import builtins
import os
import sys

from . import TYPE_CHECKING
from .failures import traceback_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .settings import Settings

_COROUTINE, _ASYNC_GENERATOR, _VARARGS = 0x80, 0x200, 0x04
_DETAIL_CHARACTERS = 4000


class LoadFailed(Exception):
    """The user's code cannot be served: a sentence, and the end of the traceback where there is one."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class Handler:
    """The user's function and how it wants to be called.

    `is_async`: a coroutine function or async generator function, to be called on the event loop.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._arguments = _positional(function)
        self.is_async = bool(_flags(function) & (_COROUTINE | _ASYNC_GENERATOR))

    def __call__(self, event: object, context: object) -> Any:
        if self._arguments == 1:
            return self._function(event)
        if self._arguments >= 2:
            return self._function(event, context)
        return self._function()


def load(settings: Settings) -> Handler:
    """Import the entrypoint's module and take the handler from it. Raises LoadFailed."""
    module_name, _, name = settings.entrypoint.rpartition(".")
    if not module_name or not name:
        raise LoadFailed(f"entrypoint {settings.entrypoint!r} must be module.function, such as handler.handle")
    try:
        _prepare(settings)
        module = _import(settings, module_name)
    except LoadFailed:
        raise
    except BaseException as error:
        text = traceback_text(error)
        raise LoadFailed(_sentence(module_name, error), text[-_DETAIL_CHARACTERS:]) from error
    function = getattr(module, name, None)
    if function is None:
        raise LoadFailed(f"entrypoint {settings.entrypoint!r}: {_path(module_name)} has no {name!r}{_hint(module)}")
    if not callable(function):
        kind = type(function).__name__
        raise LoadFailed(f"entrypoint {settings.entrypoint!r}: {name!r} is no function but a {kind}")
    if _unfilled(function):
        wanted = "more parameters than (event) or (event, context); give the others defaults"
        raise LoadFailed(f"entrypoint {settings.entrypoint!r}: {name!r} wants {wanted}")
    return Handler(function)


def _prepare(settings: Settings) -> None:
    """What `site` would have done for a script: its folder first on the path, `exit` and `quit`."""
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    os.chdir(settings.code_dir)
    sys.path.insert(0, settings.code_dir)
    if settings.dependencies_dir:
        sys.path.insert(1, settings.dependencies_dir)
        if any(name.endswith(".pth") for name in os.listdir(settings.dependencies_dir)):
            import site

            site.addsitedir(settings.dependencies_dir)


def _import(settings: Settings, name: str) -> Any:
    path = os.path.join(settings.code_dir, *name.split("."))
    if not (os.path.isfile(path + ".py") or os.path.isdir(path)):
        raise LoadFailed(f"entrypoint {settings.entrypoint!r}: there is no file {_path(name)} in the code")
    loaded = sys.modules.get(name)
    if loaded is not None and not (getattr(loaded, "__file__", None) or "").startswith(settings.code_dir):
        return _import_beside(name, path + ".py")
    __import__(name)
    return sys.modules[name]


def _import_beside(name: str, path: str) -> Any:
    """A user's module whose name a module of the standard library already has here (`select.py`, say)."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 - a .py file has one
    assert spec.loader is not None  # noqa: S101
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _path(module_name: str) -> str:
    return module_name.replace(".", "/") + ".py"


def _sentence(module_name: str, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        where = f"{os.path.basename(error.filename or _path(module_name))}, line {error.lineno}"
        return f"{_path(module_name)} cannot be loaded: {type(error).__name__}: {error.msg} ({where})"
    text = str(error)
    return f"{_path(module_name)} cannot be loaded: {type(error).__name__}{': ' + text if text else ''}"[:2000]


def _hint(module: Any) -> str:
    names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    own = [name for name in names if getattr(getattr(module, name), "__module__", None) == module.__name__]
    return f"; it has {', '.join(own[:10])}" if own else ""


def _code(function: Any) -> Any:
    """The code object behind a function, a method, a partial or an object with __call__."""
    while hasattr(function, "func") and hasattr(function, "keywords"):
        function = function.func
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004 - its code is wanted
    return getattr(function, "__code__", None)


def _flags(function: Any) -> int:
    code = _code(function)
    return code.co_flags if code is not None else 0


def _positional(function: Any) -> int:
    """How many of (event, context) the handler takes.

    A decorator's `*args` says nothing, so what it wraps is asked instead (`functools.wraps` leaves it there).
    """
    while _flags(function) & _VARARGS and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = _code(function)
    if code is None:
        return 1
    if code.co_flags & _VARARGS:
        return 2
    return int(min(2, max(0, code.co_argcount - _bound(function))))


def _unfilled(function: Any) -> int:
    """How many parameters nothing would be given for: beyond (event, context), keyword-only ones, without a default.

    Asked of plain functions and methods alone; what others want cannot be told from here.
    """
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        return 0
    positional = code.co_argcount - _bound(function) - len(function.__defaults__ or ())
    keywords = code.co_kwonlyargcount - len(function.__kwdefaults__ or ())
    return int(max(0, positional - 2) + max(0, keywords))


def _bound(function: Any) -> int:
    """Positional parameters that are filled already: `self`, and those of a partial."""
    if hasattr(function, "func") and hasattr(function, "keywords"):
        return len(function.args) + _bound(function.func)
    return 1 if hasattr(function, "__self__") or not hasattr(function, "__code__") else 0
