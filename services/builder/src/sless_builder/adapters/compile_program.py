"""Compiles Python source that nobody trusts; run by the runtime's own interpreter as `python -I -S`, one process a build.

Nothing of the platform and little of the standard library is imported: each import is time that every build waits.
The process has no file, no environment and no credential: sources come on stdin, results go to stdout. Before it
reads the first byte it has given up its user, and limits itself.

Arguments: user id (0: keep the own), CPU seconds, bytes of memory, encodings that sources declare. Numbers on the wire are big-endian u32.
In:  length of the path, length of the source, path, source.
Out: one byte `+` or `-`, length, then what the source imports (its length, then lines of `line level guarded module names`)
and the .pyc, or `kind NUL line NUL column NUL message NUL source line`.
"""

import _imp
import marshal
import posix
import resource
import sys
from _frozen_importlib_external import MAGIC_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SHOWN = 500
_ONLY_TREE = 0x400  # ast.PyCF_ONLY_AST
_MAX_SCANNED_BYTES = 256 << 10
_MAX_IMPORTS = 2_000
_ABSENCE = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_UNCHECKED_HASH = (1).to_bytes(4, "little")  # PEP 552: the interpreter believes the .pyc without looking at the source


def _confine(uid: int, cpu_sec: int, memory: int) -> None:
    # Above the soft limit comes SIGXCPU, which tells a slow source from a want of memory; at the hard one SIGKILL.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_sec, cpu_sec + 5))
    for limit, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 16),
    ):
        resource.setrlimit(limit, (value, value))
    if uid:
        posix.setgroups([])
        posix.setresgid(uid, uid, uid)
        posix.setresuid(uid, uid, uid)
    # After the change of user: the limit counts the new user's processes.
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _read(count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = posix.read(0, min(count - len(data), 1 << 20))
        if not chunk:
            raise SystemExit(0)
        data += chunk
    return data


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[posix.write(1, view) :]


def _compiled(path: str, source: bytes) -> bytes:
    code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    key = int.from_bytes(MAGIC_NUMBER, "little")
    return bytes(MAGIC_NUMBER) + _UNCHECKED_HASH + _imp.source_hash(key, source) + marshal.dumps(code)


def _imports(source: bytes) -> bytes:
    """What a source that compiles imports, as far as it says so."""
    if len(source) > _MAX_SCANNED_BYTES:
        return b""
    try:
        tree = compile(source, "", "exec", _ONLY_TREE, dont_inherit=True)
        return "\n".join(_imports_in(tree)).encode()
    except (ValueError, RecursionError, MemoryError):
        return b""


def _imports_in(tree: "Any") -> "list[str]":
    found: list[str] = []
    ahead = [(tree, False)]
    while ahead and len(found) < _MAX_IMPORTS:
        node, guarded = ahead.pop()
        kind = type(node).__name__
        if kind == "Import":
            found += [f"{node.lineno} 0 {guarded:d} {item.name} " for item in node.names]
        elif kind == "ImportFrom":
            names = ",".join(item.name for item in node.names if item.name != "*")
            found.append(f"{node.lineno} {node.level} {guarded:d} {node.module or ''} {names}")
        elif not (kind == "If" and "TYPE_CHECKING" in _named(node.test)):
            guarded = guarded or _expects_absence(node, kind)
            ahead += [(child, guarded) for child in _children(node)]
    return found


def _children(node: "Any") -> "list[Any]":
    children: list[Any] = []
    for name in node._fields:
        value = getattr(node, name, None)
        children += [item for item in (value if isinstance(value, list) else [value]) if hasattr(item, "_fields")]
    return children


def _expects_absence(node: "Any", kind: str) -> bool:
    """Whether imports within may fail: `try` with a handler for that, `with suppress(ImportError)`."""
    if kind == "Try":
        return any(handler.type is None or _named(handler.type) & _ABSENCE for handler in node.handlers)
    return kind == "With" and any(_named(item.context_expr) & _ABSENCE for item in node.items)


def _named(node: "Any") -> set[str]:
    """The names in an expression, an attribute's last part among them."""
    names = {getattr(node, "id", ""), getattr(node, "attr", "")}
    return names.union(*(_named(child) for child in _children(node)))


def _problem(error: BaseException) -> bytes:
    fields: list[object] = [type(error).__name__, 0, 0, str(error), ""]
    if isinstance(error, SyntaxError):
        fields[1:] = [error.lineno or 0, error.offset or 0, error.msg, error.text or ""]
    texts = (str(field).replace("\0", " ")[:_SHOWN] for field in fields)
    return "\0".join(texts).encode("utf-8", "backslashreplace")


def _load(encoding: str) -> None:
    """Have an encoding ready; one that does not exist is a mistake in the source that declares it."""
    try:
        b" ".decode(encoding)  # nothing is looked up for no bytes
    except (LookupError, ValueError):
        return


def main() -> None:
    """Answer until stdin ends."""
    for encoding in sys.argv[4:]:
        _load(encoding)
    _confine(*(int(argument) for argument in sys.argv[1:4]))
    while True:
        sizes = _read(8)
        path = _read(int.from_bytes(sizes[:4], "big")).decode()
        source = _read(int.from_bytes(sizes[4:], "big"))
        try:
            pyc, imports = _compiled(path, source), _imports(source)
            kind, answer = b"+", len(imports).to_bytes(4, "big") + imports + pyc
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
            kind, answer = b"-", _problem(error)
        _write(kind + len(answer).to_bytes(4, "big") + answer)


if __name__ == "__main__":
    main()
