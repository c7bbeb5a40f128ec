"""Turns uploaded code into content-addressed layers, once a version."""
