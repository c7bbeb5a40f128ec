"""Verifies who is calling and mints the internal identity."""
