"""How a spec becomes a program: pure, apart from asking which folders are there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sless_platform.errors import InvalidArgument

from sless_runtime_manager.adapters.local.interpreters import Interpreter
from sless_runtime_manager.adapters.rules import refuse_reserved
from sless_runtime_manager.errors import StartFailed
from sless_runtime_manager.ports import InstanceSpec

RUNTIME_TARGET = "/opt/sless/runtime"
DEPENDENCIES_TARGET = "/opt/sless/dependencies"
CODE_TARGET = "/srv/function"

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_INTERPRETER_MB = 64
_THREAD_MB = 8
_SPARE_THREADS = 8


@dataclass(frozen=True)
class Places:
    """Folders of this machine: of all instances, and of unpacked layers."""

    run: Path
    layers: Path


def python_start(spec: InstanceSpec, places: Places, python: Interpreter) -> dict[str, object]:
    """The launcher's `start` for runtime python3.11.

    Raises InvalidArgument for variables that are the platform's, StartFailed for a layer that isn't there.
    """
    refuse_reserved(spec.env)
    shown = _shown(spec, places)
    return {
        "instance_id": spec.instance_id,
        "uid_index": spec.uid_index,
        "argv": [str(python.executable), "-I", "-S", f"{RUNTIME_TARGET}/main.py"],
        "env": {**_defaults(python), **spec.env, **_platforms(spec, DEPENDENCIES_TARGET in shown)},
        "prefixes": list(_prefixes(places, python)),
        "layers": [{"source": str(source), "target": target} for target, source in shown.items()],
        "zygote": RUNTIME_TARGET,
        "cwd": CODE_TARGET,
        "memory_mb": spec.memory_mb,
        "allowance_mb": allowance_mb(spec.max_concurrency),
    }


def allowance_mb(max_concurrency: int) -> int:
    """What a Python may allocate before the function's own code does, MiB: the interpreter with the runtime, and the stack of a
    thread a call, which counts whole though little of it is ever used."""
    return _INTERPRETER_MB + _THREAD_MB * (max_concurrency + _SPARE_THREADS)


def _shown(spec: InstanceSpec, places: Places) -> dict[str, Path]:
    """What lies where inside. The builder's layers are, lowest first: the runtime, the dependencies if there are any, the code."""
    layers = [_layer(digest, places) for digest in spec.layers]
    if not 2 <= len(layers) <= 3:
        raise InvalidArgument(f"an instance has two or three layers, not {len(layers)}", field="layers")
    runtime, *dependencies, code = layers
    shown = {RUNTIME_TARGET: runtime, CODE_TARGET: code}
    if dependencies:
        shown[DEPENDENCIES_TARGET] = dependencies[0]
    return shown


def _layer(digest: str, places: Places) -> Path:
    if not _DIGEST.fullmatch(digest):
        raise InvalidArgument(f"a layer is named by sha256: and 64 hexadecimal digits, not {digest!r}", field="layers")
    folder = places.layers / digest.removeprefix("sha256:")
    if not folder.is_dir():
        raise StartFailed(f"the layer {digest} is not there: no folder {folder}")
    return folder


@cache
def _prefixes(places: Places, python: Interpreter) -> tuple[str, ...]:
    return tuple(python.exposed((places.run, places.layers, Path.home())))


def _defaults(python: Interpreter) -> dict[str, str]:
    return {
        "PATH": f"{python.executable.parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108 - the instance's own
        "TMPDIR": "/tmp",  # noqa: S108
        "LANG": "C.UTF-8",
    }


def _platforms(spec: InstanceSpec, has_dependencies: bool) -> dict[str, str]:
    return {
        **({"SLESS_DEPENDENCIES_DIR": DEPENDENCIES_TARGET} if has_dependencies else {}),
        "SLESS_CODE_DIR": CODE_TARGET,
        "SLESS_ENTRYPOINT": spec.entrypoint,
        "SLESS_FUNCTION": spec.name,
        "SLESS_GRACE_MS": str(round(spec.grace.total_seconds() * 1000)),
        "SLESS_INSTANCE": spec.instance_id,
        "SLESS_MAX_CONCURRENCY": str(spec.max_concurrency),
        "SLESS_MEMORY_MB": str(spec.memory_mb),
        "SLESS_NAMESPACE": spec.namespace,
        "SLESS_VERSION": str(spec.version),
    }
