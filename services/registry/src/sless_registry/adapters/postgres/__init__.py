"""The store in PostgreSQL."""

from sless_registry.adapters.postgres.store import PostgresStore
from sless_registry.adapters.postgres.wakes import PostgresWakes

__all__ = ["PostgresStore", "PostgresWakes"]
