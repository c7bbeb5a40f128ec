"""`python -m tests.support.fake_platform up …`: the real command line, over fake services."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

from sless_cli import main
from sless_cli.commands import up
from sless_cli.embedded import log, run
from sless_cli.embedded.run import Parts

from tests.support.fake_platform.services import SERVICES

HERE = Path(__file__).parent


def parts() -> Parts:
    """The fake parts."""
    return Parts(services=SERVICES, launcher=HERE / "launcher.py", runtimes=HERE, python311=Path(sys.executable))


def shortened() -> None:
    """Bounds that a test wants lower than they are."""
    if "FAKE_START_LIMIT_SEC" in os.environ:
        run.START_LIMIT = timedelta(seconds=float(os.environ["FAKE_START_LIMIT_SEC"]))
    if "FAKE_LOG_BYTES" in os.environ:
        log.MAX_BYTES = int(os.environ["FAKE_LOG_BYTES"])


up.installed_parts = parts
shortened()
main.main()
