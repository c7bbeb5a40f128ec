"""Admits a call, finds or waits for an instance, and streams the answer."""
