"""Platforms of fake services under the real supervisor and the real PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_platform.harness import ORDINARY_UID, FakePlatform, fake_platform


@pytest.fixture(scope="session")
def template() -> Iterator[Path]:
    """A data folder in which a platform has run once, to be copied."""
    with fake_platform() as once:
        once.up()
        once.down()
        yield once.data


@pytest.fixture
def platform(template: Path) -> Iterator[FakePlatform]:
    """A platform of the test's own that has run before and does not run."""
    with fake_platform(template=template) as found:
        yield found


@pytest.fixture
def new_platform() -> Iterator[FakePlatform]:
    """A platform of the test's own that has never run."""
    with fake_platform() as found:
        yield found


@pytest.fixture(params=["self", "ordinary"])
def platform_of(request: pytest.FixtureRequest) -> Iterator[FakePlatform]:
    """A new one as this user and, where this user is root, as an ordinary one that /etc/passwd does not know."""
    if request.param == "ordinary" and os.getuid() != 0:
        pytest.skip("the test's user is an ordinary one already")
    with fake_platform(ORDINARY_UID if request.param == "ordinary" else None) as found:
        yield found
