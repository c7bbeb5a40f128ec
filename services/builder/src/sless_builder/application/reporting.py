"""Tells the registry how builds go, from their rows, until it has acknowledged each state."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from sless_platform import tracing
from sless_platform.backoff import Backoff
from sless_platform.errors import PlatformError
from sless_platform.faults import fault_point
from sless_platform.logging import get_logger

from sless_builder.domain.build import Report
from sless_builder.ports import REPORTS, Registry, Reports, Signals

_LOOK_AGAIN: Final = timedelta(seconds=5)
_BACKOFF: Final = Backoff(timedelta(milliseconds=100), timedelta(seconds=10))

log = get_logger(__name__)


class Reporter:
    """Reports what this process has built, and what another one left unreported."""

    def __init__(self, *, owner: str, registry: Registry, reports: Reports, signals: Signals) -> None:
        self._owner = owner
        self._registry = registry
        self._reports = reports
        self._signals = signals

    async def run(self) -> None:
        """Report until cancelled."""
        pauses = _BACKOFF.delays()
        with self._signals.listen(REPORTS) as something:
            while True:
                if await self._report_all():
                    pauses = _BACKOFF.delays()
                    await something.wait(_LOOK_AGAIN)
                else:
                    await asyncio.sleep(next(pauses).total_seconds())

    async def _report_all(self) -> bool:
        """Whether all that was to be told has been told."""
        try:
            reports = await self._reports.unreported(self._owner)
        except PlatformError as error:
            log.warning("builds to report are not known", error=error.message)
            return False
        return all(await asyncio.gather(*(self._report(report) for report in reports)))

    async def _report(self, report: Report) -> bool:
        try:
            with tracing.within(tracing.kept(report.traceparent)):
                state = await self._registry.report(report)
            fault_point("builder.report.before_ack" if report.state.final else "builder.report.building_told")
            await self._reports.acknowledge(report, state)
        except PlatformError as error:
            log.warning("build not reported", version=report.version_uid, state=report.state.value, error=error.message)
            return False
        if report.state.final:
            fault_point("builder.report.after_ack")
        return True
