"""auth's contract and its code say the same."""

from __future__ import annotations

from sless.auth.v1 import auth_pb2 as pb
from sless_auth import errors
from sless_platform.errors import PlatformError


def test_every_reason_of_the_api_has_its_error() -> None:
    raised = {
        error.reason
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, PlatformError) and error.__module__ == errors.__name__
    }
    declared = {name.removeprefix("ERROR_REASON_") for name in pb.ErrorReason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118

    assert raised == declared
