"""Instances as processes of this machine, made by the launcher."""

from __future__ import annotations

from sless_runtime_manager.adapters.local.backend import LocalRuntimeBackend
from sless_runtime_manager.adapters.local.interpreters import find_python311

__all__ = ["LocalRuntimeBackend", "find_python311"]
