"""`SLESS_TEST_REQUIRE=all`: a test that would be skipped fails instead, so that nothing goes untested unnoticed."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns skips into failures where everything is required."""
    report = yield
    if report.skipped and os.environ.get("SLESS_TEST_REQUIRE") == "all" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"SLESS_TEST_REQUIRE=all, but this test would be skipped: {reason}"
    return report
