"""What the Python runtime does for nothing leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RUNTIME = Path(__file__).parents[3] / "runtimes" / "python3.11"
CODE = """
import gc, json, os, sys, threading
sys.path.insert(0, sys.argv[1])
from sless_runtime import zygote
del sys.path[0]
zygote.prepare()
def state():
    gc.collect()
    return [sorted(os.listdir("/proc/self/fd")), sorted(sys.modules), sys.path, dict(os.environ), threading.active_count(), os.getcwd()]
zygote.rehearse()
before = state()
for _ in range(50):
    zygote.rehearse()
after = state()
print(json.dumps([one == other for one, other in zip(before, after)]))
"""


def test_rehearsals_leave_no_descriptor_module_variable_or_thread() -> None:
    command = [sys.executable, "-I", "-S", "-c", CODE, str(RUNTIME)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [True] * 6
