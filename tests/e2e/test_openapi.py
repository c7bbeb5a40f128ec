"""The live API against its own document: schemathesis makes requests by it, right and wrong ones, as two users.

What is made is bounded and the same each time. Not asked for: that every request that fits the document is accepted, since the document
cannot say everything (an If-Match of the present state, a zip that is one).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.embedded import Platform, User

HANDLER = "def handle(event):\n    return event\n"
TRUTHS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "allow_header_conformance", "ignored_auth",
)  # fmt: skip
SERVICE, FUNCTION = "hello", "hallo"
EXAMPLES = 4
PHASES = "examples,coverage,fuzzing"
LIMIT_SEC = 300
SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"

pytestmark = pytest.mark.timeout(LIMIT_SEC)


@pytest.fixture
def owner(platform: Platform) -> User:
    """Somebody with a service and a function."""
    user = platform.user()
    user.deploy(SERVICE, HANDLER)
    user.deploy(FUNCTION, HANDLER, "functions")
    return user


def explored(
    user: User,
    folder: Path,
    *,
    namespace: str,
    named: bool,
    checks: tuple[str, ...],
    only: str = ".",
    phases: str = PHASES,
) -> None:
    """Runs schemathesis as this user; an AssertionError shows what it found."""
    refused = "[400, 401, 403, 404, 405, 409, 412, 413, 414, 415, 422, 429, 431, 503]"
    lines = ["[checks]", f"negative_data_rejection.expected-statuses = {refused}"]
    lines += ["[parameters]", f'"path.ns" = "{namespace}"']
    if named:
        lines += [
            f'"path.name" = "{SERVICE}"',
            "[[operations]]",
            'include-tag = "functions"',
            "[operations.parameters]",
        ]
        lines += [f'"path.ns" = "{namespace}"', f'"path.name" = "{FUNCTION}"']
    config = folder / "schemathesis.toml"
    config.write_text("\n".join(lines))
    command = [
        str(SCHEMATHESIS), "--config-file", str(config), "run", f"{user.platform.endpoint}/openapi.json",
        "--header", f"Authorization: Bearer {user.token}", "--checks", ",".join(checks),
        "--phases", phases, "--max-examples", str(EXAMPLES),
        "--generation-deterministic", "--continue-on-failure", "--no-color",
        "--request-timeout", "30", "--include-operation-id-regex", only,
    ]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_SEC - 20,
        check=False,
        env=user.platform.environ,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "0 generated" not in done.stdout


def test_what_is_there_answers_as_the_document_says(owner: User, tmp_path: Path) -> None:
    explored(owner, tmp_path, namespace=owner.namespace, named=True, checks=TRUTHS, only="^(?!delete)")


def test_what_the_document_does_not_allow_is_refused(owner: User, tmp_path: Path) -> None:
    checks = (*TRUTHS, "negative_data_rejection")
    explored(owner, tmp_path, namespace=owner.namespace, named=False, checks=checks, only="^(create|replace|upload)")


def test_somebody_else_changes_and_sees_nothing(owner: User, platform: Platform, tmp_path: Path) -> None:
    before = owner.request("GET", "/services").json(), owner.request("GET", "/functions").json()

    # Each of these is refused before its parameters are looked at: going through them all would say nothing more.
    stranger, phases = platform.user(), "examples,fuzzing"
    explored(stranger, tmp_path, namespace=owner.namespace, named=True, checks=TRUTHS, phases=phases)

    assert (owner.request("GET", "/services").json(), owner.request("GET", "/functions").json()) == before
