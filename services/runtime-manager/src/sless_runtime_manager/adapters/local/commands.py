"""How a spec becomes a program: pure, apart from asking which folders are there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sless_platform.errors import InvalidArgument

from sless_runtime_manager.adapters.local.interpreters import Interpreter
from sless_runtime_manager.adapters.rules import refuse_reserved
from sless_runtime_manager.errors import StartFailed
from sless_runtime_manager.ports import InstanceSpec

RUNTIME_TARGET = "/opt/sless/runtime"
CODE_TARGET = "/srv/function"

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_INTERPRETER_MB = 64
_THREAD_MB = 8
_SPARE_THREADS = 8


@dataclass(frozen=True)
class Places:
    """Folders of this machine: of all instances, of unpacked layers, of the runtimes' code."""

    run: Path
    layers: Path
    runtimes: Path


def python_start(spec: InstanceSpec, places: Places, python: Interpreter, *, sandboxed: bool) -> dict[str, object]:
    """The launcher's `start` for runtime python3.11. Without a sandbox the real folders take the place of those inside.

    Raises InvalidArgument for variables that are the platform's, StartFailed for a layer or runtime that isn't there.
    """
    refuse_reserved(spec.env)
    runtime = _existing(places.runtimes / spec.runtime, f"the code of runtime {spec.runtime}")
    code = _code_layer(spec, places)
    runtime_inside = RUNTIME_TARGET if sandboxed else str(runtime)
    code_inside = CODE_TARGET if sandboxed else str(code)
    private = (places.run, places.layers, Path.home())
    return {
        "instance_id": spec.instance_id,
        "uid_index": spec.uid_index,
        "argv": [str(python.executable), "-I", "-S", f"{runtime_inside}/main.py"],
        "env": {**_defaults(python), **spec.env, **_platforms(spec, code_inside)},
        "prefixes": python.exposed(private),
        "layers": [
            {"source": str(runtime), "target": RUNTIME_TARGET},
            {"source": str(code), "target": CODE_TARGET},
        ],
        "cwd": code_inside,
        "memory_mb": spec.memory_mb,
        "allowance_mb": allowance_mb(spec.max_concurrency),
    }


def allowance_mb(max_concurrency: int) -> int:
    """What a Python may allocate before the function's own code does, MiB: the interpreter with the runtime, and the stack of a
    thread a call, which counts whole though little of it is ever used."""
    return _INTERPRETER_MB + _THREAD_MB * (max_concurrency + _SPARE_THREADS)


def _code_layer(spec: InstanceSpec, places: Places) -> Path:
    digest = spec.layers[-1]
    if not _DIGEST.fullmatch(digest):
        raise InvalidArgument(f"a layer is named by sha256: and 64 hexadecimal digits, not {digest!r}", field="layers")
    return _existing(places.layers / digest.removeprefix("sha256:"), f"the layer {digest}")


def _existing(folder: Path, what: str) -> Path:
    if not folder.is_dir():
        raise StartFailed(f"{what} is not there: no folder {folder}")
    return folder.resolve()


def _defaults(python: Interpreter) -> dict[str, str]:
    return {
        "PATH": f"{python.executable.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108 - the instance's own
        "TMPDIR": "/tmp",  # noqa: S108
        "LANG": "C.UTF-8",
    }


def _platforms(spec: InstanceSpec, code: str) -> dict[str, str]:
    return {
        "SLESS_CODE_DIR": code,
        "SLESS_ENTRYPOINT": spec.entrypoint,
        "SLESS_FUNCTION": spec.name,
        "SLESS_GRACE_MS": str(round(spec.grace.total_seconds() * 1000)),
        "SLESS_INSTANCE": spec.instance_id,
        "SLESS_MAX_CONCURRENCY": str(spec.max_concurrency),
        "SLESS_MEMORY_MB": str(spec.memory_mb),
        "SLESS_NAMESPACE": spec.namespace,
        "SLESS_VERSION": str(spec.version),
    }
