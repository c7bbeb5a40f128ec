"""Everything in this process's memory: for models and fast tests; nothing outlives the process."""

from sless_registry.adapters.memory.store import MemoryStore
from sless_registry.adapters.memory.wakes import MemoryWakes

__all__ = ["MemoryStore", "MemoryWakes"]
