"""What is said on the launcher's socket: one JSON object a line, both ways.

Requests carry `id` and `op`; the answer carries the same `id` and either `result` or `error`:

    {"id": 1, "op": "start", "spec": {…}}      {"id": 1, "result": {"instance_id", "pid", "running", "started_at", "socket", "note"}}
    {"id": 2, "op": "stop", "instance_id": "i-…", "grace_ms": 5000}             {"id": 2, "result": {}}   when it is gone
    {"id": 3, "op": "list"}                    {"id": 3, "result": {"instances": [as start answers, …]}}
    {"id": 4, "op": "isolation"}               {"id": 4, "result": {"level", "memory", "processes", "landlock", "seccomp", "network", …}}
    {"id": 5, "op": "follow"}                  {"id": 5, "result": {}}   and events from now on, first the ends that nobody has seen
    {"id": 6, "op": "seen", "instance_ids": ["i-…"]}                            {"id": 6, "result": {}}
    error: {"code": "START_FAILED" | "EXHAUSTED" | "NO_MEMORY" | "INVALID" | "STOPPING", "message": "…", "step": "…", "errno": 13}

Events have no id:

    {"event": "listens", "instance_id", "socket"}   its socket is there, its program not yet: who connects waits for that
    {"event": "output", "instance_id", "stream": "stdout" | "stderr", "text", "dropped": bytes dropped before it}
    {"event": "ended", "instance_id", "exit_code": 1 | null, "signal": 9 | null, "reason", "tail"}
    reason: "ended" by itself, "stopped" as asked, or what it used more of than it may: "memory", "disk"
"""

from __future__ import annotations

import json
import os
import re

MAX_LINE = 1 << 20
"""Longest request in bytes; an environment has 32 KiB at most."""

MAX_SOCKET_PATH = 107
"""unix(7): 108 bytes with the zero at the end."""

START_FAILED = "START_FAILED"
EXHAUSTED = "EXHAUSTED"
NO_MEMORY = "NO_MEMORY"
INVALID = "INVALID"
STOPPING = "STOPPING"

_INSTANCE_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_TARGETS = ("/opt/sless/", "/srv/")


class RequestError(Exception):
    """A request that is answered with an error; `message` is a sentence."""

    def __init__(self, code: str, message: str, *, step: str | None = None, errno: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.step = step
        self.errno = errno

    def payload(self) -> dict[str, object]:
        """The answer's `error`."""
        return {"code": self.code, "message": self.message, "step": self.step, "errno": self.errno}


class StartSpec:
    """What `start` asks for.

    instance_id   letters, digits, hyphens.
    uid_index     as root the process runs under uid = gid = the launcher's uid base + this.
    argv          the program, an absolute path as it is seen inside, and its arguments.
    env           the complete environment; SLESS_LISTEN_FD is added.
    prefixes      the interpreter's files and folders, shown at their own paths.
    layers        (folder of the machine, place inside) pairs, shown read-only.
    cwd           working directory inside.
    memory_mb     memory of the function, MiB; also the size of its /tmp, which is memory.
    allowance_mb  what its runtime may allocate on top before the function's own code has done anything, MiB.
    zygote        the place inside of the layer that may be loaded ahead (zygote.py); null: the program is always executed.
    note          what whoever starts it wants to find again: `list` tells it, and instance.json in its folder. No secrets.
    """

    __slots__ = (
        "allowance_mb",
        "argv",
        "cwd",
        "env",
        "instance_id",
        "layers",
        "memory_mb",
        "note",
        "prefixes",
        "uid_index",
        "zygote",
    )

    def __init__(self, fields: object) -> None:
        """From the request's `spec`; RequestError for a field that is missing or wrong."""
        spec = _object(fields, "spec")
        self.instance_id = instance_id_of(spec)
        self.uid_index = _number(spec, "uid_index", 0, 1 << 30)
        self.argv = _strings(spec, "argv")
        self.env = _environment(spec)
        self.prefixes = tuple(sorted(_path(item, "prefixes") for item in _strings(spec, "prefixes")))
        self.layers = _layers(spec)
        self.cwd = _path(spec.get("cwd", "/"), "cwd")
        self.memory_mb = _number(spec, "memory_mb", 1, 1 << 20)
        self.allowance_mb = _number(spec, "allowance_mb", 0, 1 << 20)
        self.note = _object(spec.get("note", {}), "note")
        self.zygote = None if spec.get("zygote") is None else _path(spec["zygote"], "zygote")
        if not self.argv or not self.argv[0].startswith("/"):
            raise RequestError(INVALID, f"argv must begin with an absolute path, not {self.argv[:1]!r}")
        if "/" in self.prefixes:
            raise RequestError(INVALID, "prefixes must not name the machine's root: all of it would be shown")
        if self.zygote is not None and self.zygote not in self.targets:
            raise RequestError(INVALID, f"zygote must be the target of a layer, not {self.zygote!r:.200}")

    @property
    def targets(self) -> dict[str, str]:
        """The layers' folders by their places inside."""
        return {target: source for source, target in self.layers}

    def fields(self) -> dict[str, object]:
        """What the constructor takes, without the note."""
        fields: dict[str, object] = {name: getattr(self, name) for name in self.__slots__ if name != "note"}
        return {**fields, "layers": [{"source": source, "target": target} for source, target in self.layers]}


def parse(line: bytes) -> dict[str, object]:
    """One request; RequestError when the line is no JSON object."""
    try:
        return _object(json.loads(line), "a request")
    except ValueError as error:
        raise RequestError(INVALID, f"a request must be one line of JSON: {error}") from None


def encode(message: dict[str, object]) -> bytes:
    """One line."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def instance_id_of(request: dict[str, object]) -> str:
    """The request's `instance_id`, fit to name a folder."""
    value = request.get("instance_id")
    if not isinstance(value, str) or not _INSTANCE_ID.fullmatch(value):
        raise RequestError(INVALID, f"instance_id must be small letters, digits and hyphens, not {value!r}")
    return value


def instance_ids_of(request: dict[str, object]) -> list[str]:
    """The request's `instance_ids`."""
    return _strings(request, "instance_ids")


def grace_of(request: dict[str, object]) -> float:
    """The request's `grace_ms` in seconds."""
    return _number(request, "grace_ms", 0, 86_400_000) / 1000


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise RequestError(INVALID, f"{what} must be a JSON object, not {value!r:.40}")
    return value


def _number(fields: dict[str, object], name: str, low: int, high: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise RequestError(INVALID, f"{name} must be a whole number from {low} to {high}, not {value!r:.40}")
    return value


def _strings(fields: dict[str, object], name: str) -> list[str]:
    value = fields.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise RequestError(INVALID, f"{name} must be a list of strings")
    return value


def _environment(fields: dict[str, object]) -> dict[str, str]:
    env = _object(fields.get("env"), "env")
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or not isinstance(value, str) or "\0" in value:
            raise RequestError(INVALID, f"env must map names to strings without zero bytes; {name!r:.80} does not")
    return {name: str(value) for name, value in env.items()}


def _path(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value or os.path.normpath(value) != value:
        raise RequestError(INVALID, f"{name} must hold absolute paths without . and .., not {value!r:.200}")
    return value


def _layers(fields: dict[str, object]) -> list[tuple[str, str]]:
    value = fields.get("layers")
    if not isinstance(value, list):
        raise RequestError(INVALID, "layers must be a list of objects with source and target")
    layers = []
    for item in value:
        layer = _object(item, "a layer")
        target = _path(layer.get("target"), "a layer's target")
        if not target.startswith(_TARGETS):
            raise RequestError(INVALID, f"a layer's target must lie below {' or '.join(_TARGETS)}, not at {target}")
        layers.append((_path(layer.get("source"), "a layer's source"), target))
    return layers
