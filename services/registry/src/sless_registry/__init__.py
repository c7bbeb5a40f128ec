"""The single source of truth of functions, services and versions."""
