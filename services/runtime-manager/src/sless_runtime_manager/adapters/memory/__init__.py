"""Instances that exist in memory only: for tests of whatever uses a RuntimeBackend."""

from __future__ import annotations

from sless_runtime_manager.adapters.memory.backend import MemoryRuntimeBackend

__all__ = ["MemoryRuntimeBackend"]
