"""One launcher a module and condition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.launcher import Conditions, Launcher, LauncherClient, conditions, running_launcher


@pytest.fixture(scope="module", params=conditions(), ids=lambda under: under.name.replace(", ", "-").replace(" ", "-"))
def launcher(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    under: Conditions = request.param
    with running_launcher(under) as running:
        yield running


@pytest.fixture
def client(launcher: Launcher) -> LauncherClient:
    connected = launcher.connect()
    connected.call("follow")
    return connected
