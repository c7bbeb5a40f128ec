"""Which installer of packages this machine allows, and what is safe in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sless_builder.adapters.no_installer import NoInstaller
from sless_builder.adapters.sandboxes import FoundSandbox
from sless_builder.adapters.uv_cache import UvCache
from sless_builder.adapters.uv_installer import UvInstaller
from sless_builder.adapters.uv_tools import has_password, indexes_of, installer_tools
from sless_builder.domain.steps import StepLimits
from sless_builder.ports.installing import Installer

_NAMESPACES = "namespaces"


@dataclass(frozen=True, slots=True)
class FoundInstaller:
    """An installer.

    indexes       the variables that say where packages come from.
    sources_safe  whether code of packages may be run to build them: there it can read nothing that is not its own.
    """

    installer: Installer
    indexes: tuple[tuple[str, str], ...]
    sources_safe: bool


def find_installer(
    found: FoundSandbox, *, python: Path | None, env: Mapping[str, str], cache: UvCache, limits: StepLimits
) -> FoundInstaller:
    """The installer for the runtime's interpreter. `env`: variables that name indexes, proxies and certificates."""
    apart = found.report.level == _NAMESPACES
    return FoundInstaller(
        _installer(found, python=python, env=env, cache=cache if apart else None, limits=limits),
        indexes_of(env),
        sources_safe=apart and not has_password(env),
    )


def _installer(
    found: FoundSandbox, *, python: Path | None, env: Mapping[str, str], cache: UvCache | None, limits: StepLimits
) -> Installer:
    if python is None:
        return NoInstaller("it has no Python 3.11")
    if found.report.level == "none":
        return NoInstaller(found.report.reason)
    return UvInstaller(sandbox=found.sandbox, tools=installer_tools(python, env), shared=cache, limits=limits)
