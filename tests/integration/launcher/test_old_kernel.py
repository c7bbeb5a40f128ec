"""Kernels before 5.9 and 5.12 lack two calls that the launcher likes to use; the sandbox is the same there."""

from __future__ import annotations

import os

import pytest

from tests.support.launcher import ORDINARY_UID, Conditions, running_launcher

CODE = """
import os
for line in open("/proc/self/mountinfo"):
    fields = line.split()
    print(fields[4], ",".join(sorted(set(fields[5].split(",")) & {"ro", "nosuid", "nodev", "noexec"})))
print("descriptors", sorted(os.listdir("/proc/self/fd")))
"""
UNDER = [Conditions("ordinary", ORDINARY_UID if os.getuid() == 0 else os.getuid(), old=True)]
if os.getuid() == 0:
    UNDER.append(Conditions("root", 0, old=True))


@pytest.mark.parametrize("old", UNDER, ids=lambda under: under.name)
def test_an_older_kernel_gives_the_same_mounts(old: Conditions) -> None:
    with running_launcher(old) as here, running_launcher(Conditions(old.name, old.uid)) as there:
        tails = []
        for launcher in (here, there):
            client = launcher.connect()
            client.call("follow")
            layer = launcher.data / "layer"
            layer.mkdir(mode=0o755)
            layers = [{"source": str(layer), "target": "/srv/function"}]
            client.call("start", spec=launcher.spec("i-mounts", CODE, layers=layers))
            tails.append(client.ended("i-mounts")["tail"])
    assert tails[0] == tails[1]
    assert "descriptors ['0', '1', '2', '3', '4']" in tails[0]
