"""The ports' implementations."""
