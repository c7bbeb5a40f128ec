"""Errors of the command line: one sentence for a person, what to do, and the exit code.

Imports nothing, so that every module may raise these.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `sless`; cli/README.md lists them for people."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_ALLOWED = 3
    NOT_FOUND = 4
    UNREACHABLE = 5
    DEPLOY_FAILED = 6
    INTERRUPTED = 130


class CliError(Exception):
    """A failure that a person can act on: `message` is one sentence that says what to do as well."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageFault(CliError):
    """What was asked for makes no sense, whatever the platform's state."""

    exit_code = ExitCode.USAGE


class NotAllowed(CliError):
    """The platform does not know the caller, or does not let them."""

    exit_code = ExitCode.NOT_ALLOWED


class NotFound(CliError):
    """What was named is not there."""

    exit_code = ExitCode.NOT_FOUND


class Unreachable(CliError):
    """Nothing answers at the endpoint, or something that is no sless API."""

    exit_code = ExitCode.UNREACHABLE


class DeployFailed(CliError):
    """The code was taken but could not be built or did not start."""

    exit_code = ExitCode.DEPLOY_FAILED


class StartFailed(CliError):
    """The embedded platform could not be started."""
