"""Entry of an instance: `python3.11 -I -S main.py`, with the environment that sless_runtime.settings reads."""

import sys

sys.path.insert(0, __file__.rpartition("/")[0])

from sless_runtime.start import main

# The user's modules are found in the user's folders alone.
del sys.path[0]
main()
