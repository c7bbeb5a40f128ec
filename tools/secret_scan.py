"""Fails when a file that git tracks holds what looks like a secret, a private address of an index, or a home folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import transient_settings

PLUGINS = [
    {"name": name}
    for name in (
        "AWSKeyDetector",
        "BasicAuthDetector",
        "GitHubTokenDetector",
        "JwtTokenDetector",
        "NpmDetector",
        "PrivateKeyDetector",
        "SlackDetector",
        "StripeDetector",
    )
]
INDEX = re.compile(r"https?://[\w.-]*(?:pypi|npmjs|pythonhosted|goproxy|proxy\.golang)[\w.-]*")
API_KEY = re.compile(r"sless_[0-9a-z]{16}_[0-9A-Za-z]{36}")
HOME = re.compile(r"/(?:home|Users)/(?!(?:u|user|you|me)\b)[a-z][\w-]*/|/(?:root)/\.\w")
ALLOW = "secret-scan: allow"  # on the line, or beside it


def tracked_files() -> list[str]:
    """Every file of this checkout that git knows."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True
    )
    return [name for name in listing.stdout.decode().split("\0") if name and Path(name).is_file()]


def findings_of(name: str) -> list[str]:
    """What is wrong with one file, a line each."""
    try:
        lines = Path(name).read_text().splitlines()
    except UnicodeDecodeError:
        return []
    secrets = SecretsCollection()
    secrets.scan_file(name)
    suspects = {secret.line_number: secret.type for _, secret in secrets}
    found = []
    for number, line in enumerate(lines, 1):
        kind = suspects.get(number) or _forbidden(line)
        if kind and not any(ALLOW in near for near in lines[max(number - 2, 0) : number + 1]):
            found.append(f"{name}:{number}: {kind}")
    return found


def _forbidden(line: str) -> str | None:
    if INDEX.search(line):
        return "names the host of a package index"
    if API_KEY.search(line):
        return "holds an API key of the platform"
    if HOME.search(line):
        return "names a home folder"
    return None


def main() -> int:
    """Scans; 0 when nothing was found."""
    with transient_settings({"plugins_used": PLUGINS}):
        found = [line for name in tracked_files() for line in findings_of(name)]
    for line in found:
        print(line)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
