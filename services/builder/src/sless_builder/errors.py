"""What the builder refuses, and why."""

from __future__ import annotations

from sless_platform.errors import Aborted, InvalidArgument, NotFound, ResourceExhausted

CODE_FIELD = "code"
"""The request's field that an archive is, in every error about one."""


class ArchiveInvalid(InvalidArgument):
    """The archive can't be accepted, whatever the state of the system."""

    reason = "ARCHIVE_INVALID"

    def __init__(self, message: str) -> None:
        super().__init__(message, field=CODE_FIELD)


class ArchiveTooLarge(ResourceExhausted):
    """The archive, or what is in it, is larger than the limits allow."""

    reason = "ARCHIVE_TOO_LARGE"

    def __init__(self, message: str) -> None:
        super().__init__(message, field=CODE_FIELD)


class UploadMalformed(InvalidArgument):
    """The stream's messages came in an order that makes no sense."""

    reason = "UPLOAD_MALFORMED"


class LogNotFound(NotFound):
    """There is no log of this version."""

    reason = "LOG_NOT_FOUND"


class SourceNotFound(NotFound):
    """There is no source of this version."""

    reason = "SOURCE_NOT_FOUND"


class LeaseLost(Aborted):
    """Somebody else has the build now, or nobody wants it any more: stop, and leave nothing behind. Never sent to a caller."""

    reason = "LEASE_LOST"
