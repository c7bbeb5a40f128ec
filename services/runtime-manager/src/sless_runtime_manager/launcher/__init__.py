"""The launcher: the one process that makes, feeds and reaps function instances on this machine.

It runs alone (`python -I -S launcher/__main__.py`): standard library only, nothing of the platform imported, because every instance
begins as a fork of it.
"""
