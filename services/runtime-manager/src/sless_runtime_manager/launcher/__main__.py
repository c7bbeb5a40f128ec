"""Start of the launcher's process; see server.py for what it does."""

from __future__ import annotations

import os
import sys
import types

if not __package__:
    # `python -I -S folder/__main__.py` knows no package; make one of this folder alone, so that no other folder of the
    # platform comes on sys.path.
    _package = types.ModuleType("launcher")
    _package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules["launcher"] = _package
    __package__ = "launcher"

from .server import main  # the package must exist first

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
