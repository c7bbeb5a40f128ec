"""Where the layers are at level `none`, at which nothing can be shown at another place: names of places inside are replaced.

As root the instance's user may not enter the folder that the layers lie in. It is given each layer's folder open, and reaches
it as /proc/self/fd/N (proc_pid_fd(5)), which leads into that folder without asking about those above it.
"""

from __future__ import annotations

import os

from .protocol import StartSpec

_TEMPORARY = "/tmp"  # noqa: S108 - what programs are told in HOME and TMPDIR


class Places:
    """The layers' real places, by the places inside that the spec names."""

    def __init__(self, spec: StartSpec, scratch: str | None) -> None:
        """`scratch`: what stands for /tmp; None: that of the machine."""
        self._real = {target: source for source, target in spec.layers}
        self._scratch = scratch

    def open(self) -> None:
        """Open the folders for a user that could not. They stay open in the program. Raises OSError."""
        for target, source in self._real.items():
            folder = os.open(source, os.O_PATH | os.O_DIRECTORY)
            os.set_inheritable(folder, True)
            self._real[target] = f"/proc/self/fd/{folder}"

    def real(self, text: str) -> str:
        """`text` if it names no place inside, else where that is."""
        for target, source in self._real.items():
            if text == target or text.startswith(f"{target}/"):
                return source + text[len(target) :]
        return text

    def readable(self) -> list[str]:
        """The layers' real places."""
        return list(self._real.values())

    def _variable(self, value: str) -> str:
        return self._scratch if value == _TEMPORARY and self._scratch is not None else self.real(value)

    def apply(self, spec: StartSpec) -> None:
        """Replace the places in the program's arguments, variables and working directory."""
        spec.argv = [self.real(argument) for argument in spec.argv]
        spec.env = {name: self._variable(value) for name, value in spec.env.items()}
        spec.cwd = self.real(spec.cwd)
