"""Start of the launcher's process, see server.py for what it does, and of its zygotes, see zygote.py."""

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

if __name__ == "__main__":
    # The package must exist first.
    if sys.argv[1:2] == ["zygote"]:
        from .zygote import main as run_zygote

        sys.exit(run_zygote())
    from .server import main

    sys.exit(main(sys.argv[1:]))
