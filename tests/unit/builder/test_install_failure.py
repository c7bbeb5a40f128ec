"""What an installer's end means, by what it prints."""

from __future__ import annotations

import textwrap

import pytest
from sless_builder.domain.build import Problem
from sless_builder.domain.install_failure import NeedsSources, PlatformFault, failure_of
from sless_builder.domain.requirements import manifest_of
from sless_builder.domain.steps import Exceeded, StepEnd, StepLimits

LIMITS = StepLimits(seconds=300, memory_bytes=1 << 30, disk_bytes=2 << 30, processes=256, output_bytes=1 << 20)
REFUSED = StepEnd(1, None, None)
MANIFEST = manifest_of(
    ["requirements.txt"], lambda _path: b"requests==2.31.0\nurllib3==1.10\nbroken==1.0\n", allow_indexes=False
)
NO_SOLUTION = "error: No solution found when resolving dependencies\n  cause: "
BACKEND = """\
   Building broken==1.0
error: Failed to build `broken==1.0`
  cause: The build backend returned an error
  cause: Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)

         [stdout]
         running build_ext

         [stderr]
         error: Failed to fetch: `https://index.example/simple`
           File "setup.py", line 3
         error: command 'gcc' failed: No such file or directory

hint: Build failures usually indicate a problem with the package or the build environment
"""


def failure(printed: str, end: StepEnd = REFUSED) -> Problem | PlatformFault | NeedsSources:
    """What it means for the manifest."""
    return failure_of(end, textwrap.dedent(printed).splitlines(), MANIFEST, LIMITS)


@pytest.mark.fault(11)
@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (
            "error: Failed to fetch: http://x/simple/six/\n  cause: client error (Connect)\n"
            "  cause: Connection refused (os error 111)\n",
            "Connection refused",
        ),
        ("error: Failed to fetch: https://x/\n  cause: invalid peer certificate: UnknownIssuer\n", "UnknownIssuer"),
        (
            "error: Failed to fetch: https://x/\n  cause: dns error\n  cause: Name or service not known\n",
            "Name or service",
        ),
        ("error: Failed to fetch: https://x/\n  cause: HTTP status server error (503 Service Unavailable)\n", "503"),
        ("error: Failed to fetch: https://x/\n  cause: HTTP status client error (429 Too Many Requests)\n", "429"),
        ("error: Failed to write x\n  cause: No space left on device (os error 28)\n", "the disk is full"),
        (BACKEND.replace("exit status: 1", "signal: 9 (SIGKILL)"), "was killed"),
    ],
)
def test_the_platforms_faults(printed: str, told: str) -> None:
    found = failure(printed)
    assert isinstance(found, PlatformFault)
    assert told in found.message


@pytest.mark.fault(11)
def test_an_installer_that_was_killed_is_the_platforms_fault() -> None:
    assert isinstance(failure("", StepEnd(None, 9, None)), PlatformFault)


@pytest.mark.parametrize(
    ("printed", "reason", "package", "line"),
    [
        (
            NO_SOLUTION
            + "Because requests was not found in the package registry and you require requests==2.31.0, we can",
            "PACKAGE_NOT_FOUND",
            "requests",
            1,
        ),
        (
            NO_SOLUTION + "Because there is no version of urllib3==1.10 and you require urllib3==1.10, we can conclude",
            "PACKAGE_NOT_FOUND",
            "urllib3",
            2,
        ),
        (
            NO_SOLUTION
            + "Because requests==2.31.0 depends on urllib3>=1.21.1,<3 and you require requests==2.31.0, we\n"
            "         And because you require urllib3==1.10, we can conclude that your requirements are unsatisfiable.",
            "VERSION_CONFLICT",
            "urllib3",
            2,
        ),
        (
            "error: Failed to download `requests==2.31.0`\n  cause: Hash mismatch for `requests==2.31.0`\n",
            "HASH_MISMATCH",
            "requests",
            1,
        ),
        (
            "error: In `--require-hashes` mode, all requirements must have a hash, but none were provided for: urllib3",
            "HASH_MISMATCH",
            "urllib3",
            2,
        ),
        (
            "error: Failed to fetch: https://x/y\n  cause: HTTP status client error (404 Not Found)",
            "INSTALL_FAILED",
            "",
            0,
        ),
        ("error: something that nobody foresaw", "INSTALL_FAILED", "", 0),
        (BACKEND, "BUILD_BACKEND_FAILED", "broken", 3),
    ],
)
def test_the_authors_mistakes(printed: str, reason: str, package: str, line: int) -> None:
    found = failure(printed)
    assert isinstance(found, Problem)
    assert (found.reason, found.package, found.line) == (reason, package, line)
    assert found.quote.startswith("error: ") or reason == "BUILD_BACKEND_FAILED"
    assert len(found.quote) <= 1_200


@pytest.mark.fault(10)
def test_a_failed_build_is_told_by_the_line_that_failed() -> None:
    found = failure(BACKEND)
    assert isinstance(found, Problem)
    assert found.message == (
        "requirements.txt line 3: broken can't be built from its source: error: command 'gcc' failed: No such file or directory"
    )
    assert "hint:" not in found.quote


def test_a_package_without_a_wheel_wants_a_source_build() -> None:
    found = failure(
        NO_SOLUTION + "Because all versions of broken have no usable wheels and you require broken, we can conclude\n\n"
        "hint: Wheels are required for `broken` because building from source is disabled for all packages"
    )
    assert isinstance(found, NeedsSources)
    assert (found.problem.reason, found.problem.package) == ("SOURCE_BUILD_REFUSED", "broken")


@pytest.mark.parametrize(
    ("exceeded", "reason", "told"),
    [
        (Exceeded.TIME, "BUILD_TIMEOUT", "took longer than 300 s"),
        (Exceeded.MEMORY, "MEMORY_LIMIT", "needed more than 1,024 MiB of memory"),
        (Exceeded.DISK, "DISK_LIMIT", "needed more than 2,048 MiB of disk"),
        (Exceeded.PROCESSES, "PROCESS_LIMIT", "began more than 256 processes"),
        (Exceeded.OUTPUT, "OUTPUT_LIMIT", "printed more than 1,024 KiB"),
    ],
)
def test_limits_name_the_package_that_was_being_built(exceeded: Exceeded, reason: str, told: str) -> None:
    printed = "   Building other==2.0\n   Building broken==1.0\n      Built other==2.0\n"
    found = failure(printed, StepEnd(None, None, exceeded))
    assert isinstance(found, Problem)
    assert (found.reason, found.package, found.line) == (reason, "broken", 3)
    assert f"building broken {told}, the most it may" in found.message
