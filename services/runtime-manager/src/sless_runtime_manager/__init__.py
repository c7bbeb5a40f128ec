"""Starts, probes, repairs and stops function instances."""
