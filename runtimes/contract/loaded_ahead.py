"""Starts the Python runtime as a zygote does, but for the namespaces: `loaded_ahead.py MAIN`.

What is loaded ahead is loaded in this process, the instance is a fork of it, and this process then only passes on signals and its
fork's end.
"""

import ctypes
import gc
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

main = sys.argv[1]
sys.path.insert(0, os.path.dirname(main))
from sless_runtime import zygote  # noqa: E402

del sys.path[0]
zygote.prepare()
zygote.rehearse()
gc.collect()
gc.freeze()
instance = os.fork()
if instance == 0:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    zygote.rehearse()
    sys.argv[:] = [main]
    sys.orig_argv[3:] = [main]
    zygote.run()
for descriptor in (0, 1, 2, int(os.environ["SLESS_LISTEN_FD"])):
    os.close(descriptor)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda received, _: os.kill(instance, received))
os._exit(os.waitstatus_to_exitcode(os.waitpid(instance, 0)[1]) & 0xFF)
