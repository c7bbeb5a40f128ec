"""Control groups, version 1 or 2, for what nobody trusts: where this process may make some, they bound memory and processes."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sless_builder.domain.steps import Exceeded

_NAME: Final = "sless-build"
_ENTER: Final = 'for group in $1; do echo 0 > "$group/cgroup.procs" || exit 1; done; shift; exec "$@"'
_CONTROLLERS: Final = ("memory", "pids")
_LIMITS: Final = {
    "memory": ("memory.limit_in_bytes", "memory.max"),
    "swap": ("memory.memsw.limit_in_bytes", "memory.swap.max"),
    "pids": ("pids.max", "pids.max"),
}
"""The files' names in versions 1 and 2."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A group below which this process may make others, and what can be bounded there."""

    folder: Path
    version: int
    controllers: frozenset[str]


class ControlGroup:
    """One group: its folders, in version 1 one for each controller."""

    def __init__(self, places: Sequence[_Place]) -> None:
        self._name = f"{_NAME}-{os.getpid()}-{secrets.token_hex(4)}"
        self._places = places

    def make(self, *, memory_bytes: int, processes: int) -> None:
        """Make the group. Raises OSError."""
        for place, folder in self._folders():
            folder.mkdir()
            version = place.version - 1
            if "memory" in place.controllers:
                (folder / _LIMITS["memory"][version]).write_text(str(memory_bytes))
                with suppress(OSError):  # not every kernel counts swap
                    swap = memory_bytes if place.version == 1 else 0
                    (folder / _LIMITS["swap"][version]).write_text(str(swap))
            if "pids" in place.controllers:
                (folder / _LIMITS["pids"][version]).write_text(str(processes))

    def entered(self, command: Sequence[str]) -> list[str]:
        """The command, begun in this group."""
        folders = " ".join(str(folder) for _, folder in self._folders())
        return ["/bin/sh", "-c", _ENTER, "sh", folders, *command]

    def exceeded(self) -> Exceeded | None:
        """The limit that was reached so far."""
        for place, folder in self._folders():
            events = "memory.oom_control" if place.version == 1 else "memory.events"
            if "memory" in place.controllers and _count(folder / events, "oom_kill"):
                return Exceeded.MEMORY
            if "pids" in place.controllers and _count(folder / "pids.events", "max"):
                return Exceeded.PROCESSES
        return None

    def remove(self) -> None:
        """Remove the group, whose processes are gone."""
        for _, folder in self._folders():
            with suppress(OSError):
                folder.rmdir()

    def _folders(self) -> Iterator[tuple[_Place, Path]]:
        for place in self._places:
            yield place, place.folder / self._name


class ControlGroups:
    """Makes groups in places that `find` has found."""

    def __init__(self, places: Sequence[_Place]) -> None:
        self._places = places
        self.controllers = frozenset().union(*(place.controllers for place in places))
        """What is bounded: "memory", "pids"."""

    @classmethod
    def find(cls) -> ControlGroups:
        """The places that this process may use, perhaps none; what killed processes left there is removed."""
        places: list[_Place] = []
        missing = set(_CONTROLLERS)
        for candidate in _candidates():
            found = _usable(candidate)
            if found is not None and found.controllers & missing:
                _remove_abandoned(found.folder)
                places.append(found)
                missing -= found.controllers
        return cls(places)

    def new(self) -> ControlGroup:
        """A group that is not made yet."""
        return ControlGroup(self._places)


def _candidates() -> Iterator[_Place]:
    """The groups of this process and, in version 2, the one above, where the own one may hold processes only."""
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, path in own:
        names = frozenset(controllers.split(",")) & set(_CONTROLLERS)
        for folder in _mounted(controllers, path) if names or not controllers else ():
            if controllers:
                yield _Place(folder, 1, names)
            else:
                yield _Place(folder, 2, frozenset(_CONTROLLERS))
                yield _Place(folder.parent, 2, frozenset(_CONTROLLERS))


def _mounted(controllers: str, path: str) -> Iterator[Path]:
    """Where a group's folder is, if it can be seen."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        root, point = fields.split()[3:5]
        kind, _, options = rest.split(" ", 2)
        right = (
            kind == "cgroup2"
            if not controllers
            else kind == "cgroup" and set(controllers.split(",")) <= {*options.split(",")}
        )
        if right and (path == root or path.startswith(root.rstrip("/") + "/")):
            yield Path(point + path.removeprefix(root.rstrip("/")))


def _usable(place: _Place) -> _Place | None:
    """The place with what can be bounded there indeed; None when that is nothing."""
    if place.version == 2 and not (place.folder / "cgroup.subtree_control").exists():
        return None
    trial = ControlGroup([_Place(place.folder, place.version, frozenset())])
    try:
        trial.make(memory_bytes=0, processes=0)
        (_, folder) = next(trial._folders())
        if place.version == 2 and not (folder / "memory.max").exists():
            with suppress(OSError):
                (place.folder / "cgroup.subtree_control").write_text("+memory +pids")
        names = frozenset(name for name in place.controllers if (folder / _LIMITS[name][place.version - 1]).exists())
        entering = subprocess.run(trial.entered(["true"]), check=False, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    finally:
        trial.remove()
    return _Place(place.folder, place.version, names) if names and entering.returncode == 0 else None


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(f"{_NAME}-*"):
        with suppress(OSError, ValueError):
            if not Path(f"/proc/{int(path.name.split('-')[2])}").exists():
                path.rmdir()


def _count(path: Path, name: str) -> int:
    with suppress(OSError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
