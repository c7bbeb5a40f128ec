"""Dependency layers: what one is made from, and what is in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sless_builder.domain.layers import LAYOUT
from sless_builder.domain.manifest import Manifest

_MODULE_ENDINGS: Final = (".py", ".so", ".pyc")


@dataclass(frozen=True, slots=True)
class Setting:
    """What decides, beside the manifest, what is installed.

    runtime       such as python3.11.
    architecture  as OCI names it.
    indexes       the variables that name the index, with their values.
    """

    runtime: str
    architecture: str
    indexes: tuple[tuple[str, str], ...]

    def manifest_key(self, manifest: Manifest, namespace: str) -> str:
        """What a layer is made from. The namespace is part of it unless all bytes come from the platform's index."""
        return self._key("manifest", manifest.text(), "" if manifest.shared else namespace)

    def lock_key(self, lock: str, manifest: Manifest, namespace: str) -> str:
        """The same of what was resolved: two manifests that come to the same packages have one layer."""
        scope = "" if manifest.shared else f"{namespace} {sorted(manifest.files.items())}"
        return self._key("lock", lock, scope)

    def _key(self, kind: str, text: str, scope: str) -> str:
        indexes = "\n".join(f"{name}={value}" for name, value in self.indexes)
        parts = ("dependencies", LAYOUT, self.runtime, self.architecture, indexes, kind, scope, text)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def modules_in(paths: Iterable[str]) -> tuple[str, ...]:
    """The names that can be imported from a folder with these files: modules and packages at its top, sorted."""
    found = set()
    for path in paths:
        top, slash, _ = path.partition("/")
        if slash:
            found.add(top)
        elif path.endswith(_MODULE_ENDINGS):
            found.add(top.partition(".")[0])
    return tuple(sorted(name for name in found if name.isidentifier()))
