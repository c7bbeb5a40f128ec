"""What can go wrong in runtime-manager, each with its kind and a reason that programs compare."""

from __future__ import annotations

from sless_platform.errors import Aborted, FailedPrecondition, NotFound, Unavailable


class StartFailed(FailedPrecondition):
    """An instance could not be started; the message says at which step and why. Starting it again unchanged will not help."""

    reason = "START_FAILED"


class LauncherUnavailable(Unavailable):
    """The launcher does not answer: it is being restarted, or has ended with all its instances."""

    reason = "LAUNCHER_UNAVAILABLE"


class InstancesExhausted(Unavailable):
    """The machine has no process, file descriptor or memory left for one more instance; later it may."""

    reason = "INSTANCES_EXHAUSTED"


class MemoryExhausted(InstancesExhausted):
    """The machine has no memory for one more instance: what is left is promised to those that run, or has to stay."""

    reason = "MEMORY_EXHAUSTED"


class WorkloadNotFound(NotFound):
    """There is no such function."""

    reason = "WORKLOAD_NOT_FOUND"


class NothingToRun(FailedPrecondition):
    """No version of the function has been built."""

    reason = "NOTHING_TO_RUN"


class Disabled(FailedPrecondition):
    """The function may have no instance: its largest number of replicas is 0."""

    reason = "DISABLED"


class WatcherTooSlow(Aborted):
    """A watcher did not acknowledge what it was sent; it has to connect again and take everything anew."""


class ProbeError(Exception):
    """Why an instance isn't ready."""


class InstanceUnreachable(ProbeError):
    """An instance can't be connected to, or closed the connection before its HELLO; `str(error)` is a sentence."""


class HandlerNotLoaded(ProbeError):
    """An instance runs, but could not load the user's code.

    message  one sentence.
    detail   the end of the traceback; may be empty.
    """

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
