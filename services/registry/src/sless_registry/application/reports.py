"""What builder and runtime-manager report."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sless_platform.errors import FailedPrecondition
from sless_platform.identity import Principal

from sless_registry.application.means import Means
from sless_registry.application.mutation import ONCE, mutation
from sless_registry.application.switching import Switching
from sless_registry.domain.record import Changes, Record, changes
from sless_registry.domain.reports import BuildReport, StatusReport, build_reported, status_reported
from sless_registry.domain.resources import Phase, Version, VersionState
from sless_registry.errors import InvalidField
from sless_registry.ports import Answer

FINALIZERS = frozenset({"builder", "runtime-manager"})
"""The services that clean up after a deleted function."""


class Reports:
    """Called by services only, which the servicer's access rules check. All are idempotent."""

    def __init__(self, means: Means, switching: Switching) -> None:
        self._means = means
        self._switching = switching

    async def build(self, *, report: BuildReport) -> Version | None:
        """How a build goes; gives the version as it is then, None when it is gone. Raises InvalidField."""
        _check_build(report)
        async with mutation(self._means, subject="", method="ReportBuild", request=ONCE) as under_way:
            before = await under_way.transaction.lock_version(report.version_uid)
            if before is None:
                return None
            after = build_reported(before, report, under_way.now)
            version = after.version_by_uid(report.version_uid)
            answer = await under_way.write(changes(before, after), Answer(after.function, version))
        if answer.function is not None:
            self._switching.notice(answer.function)
        return answer.version

    async def status(self, *, report: StatusReport, within: timedelta) -> bool:
        """How a deployment goes; False when the report is outdated.

        That a version serves is stored only once the revision that asked for it holds everywhere, so that the very next call reaches
        it. Raises InvalidField, FencePending: report again.
        """
        if report.phase not in (Phase.DEPLOYING, Phase.READY, Phase.FAILED):
            raise InvalidField(f"phase must be Deploying, Ready or Failed, not {report.phase}", field="phase")
        if report.phase is Phase.READY and not await self._applied(report, within):
            return False
        async with mutation(self._means, subject="", method="ReportStatus", request=ONCE) as under_way:
            before = await under_way.transaction.lock_uid(report.function_uid)
            after = None if before is None else status_reported(before, report, under_way.now)
            if after is None:
                return False
            await under_way.write(changes(before, after), Answer(after.function))
        return True

    async def finalized(self, *, principal: Principal, function_uid: str) -> None:
        """A service has nothing left of a deleted function; once all finalizers have said so, the function is gone for good.

        Raises FailedPrecondition for a function that is not being deleted.
        """
        service = principal.service or ""
        async with mutation(self._means, subject="", method="ReportFinalized", request=ONCE) as under_way:
            record = await under_way.transaction.lock_uid(function_uid)
            if record is None:
                return
            if record.function.deleted_at is None:
                raise FailedPrecondition(f"function {function_uid} is not being deleted")
            done = await under_way.transaction.finalized(function_uid, service)
            if done >= FINALIZERS:
                await under_way.write(Changes(purged_functions=(function_uid,)), Answer())

    async def _applied(self, report: StatusReport, within: timedelta) -> bool:
        """Wait until what the report speaks of holds everywhere; False when the report is outdated already."""
        at = await self._means.store.function_by_uid(report.function_uid)
        if at.function is None:
            return False
        # The versions do not matter for whether the report is outdated.
        if status_reported(Record(at.function), replace(report, phase=Phase.READY), self._means.now()) is None:
            return False
        done = f"version {report.version} of {at.function.name!r} serves"
        await self._means.fence(at.function.revision, within, done=done)
        return True


def _check_build(report: BuildReport) -> None:
    if report.state not in (VersionState.BUILDING, VersionState.BUILT, VersionState.FAILED):
        raise InvalidField(f"state must be Building, Built or Failed, not {report.state}", field="state")
    if report.attempt < 1:
        raise InvalidField(f"attempt must be at least 1, not {report.attempt}", field="attempt")
    if report.state is VersionState.BUILT and not report.layers:
        raise InvalidField("layers must name at least one layer of a built version", field="layers")
