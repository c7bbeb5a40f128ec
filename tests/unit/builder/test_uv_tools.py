"""What the installer is told, and where code of packages may be run."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from sless_builder.adapters.installers import find_installer
from sless_builder.adapters.no_installer import NoInstaller
from sless_builder.adapters.sandboxes import FoundSandbox, NoSandbox, SandboxReport
from sless_builder.adapters.uv_cache import UvCache
from sless_builder.adapters.uv_output import Output
from sless_builder.adapters.uv_tools import has_password, indexes_of, installer_tools
from sless_builder.domain.steps import StepLimits

LIMITS = StepLimits(seconds=1, memory_bytes=1, disk_bytes=1, processes=1, output_bytes=1)
PYTHON = Path("/usr/bin/python3")


def found(level: str) -> FoundSandbox:
    return FoundSandbox(NoSandbox(""), SandboxReport(level, "host", "exact", "no room"), None)


def test_pips_variables_are_taken_where_uvs_are_not_set(tmp_path: Path) -> None:
    certificates = tmp_path / "own.pem"
    certificates.touch()
    variables = {
        "PIP_INDEX_URL": "https://pip.example/simple",
        "UV_INDEX": "https://uv.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://extra.example/simple",
        "SSL_CERT_FILE": str(certificates),
    }
    tools = installer_tools(PYTHON, variables)
    assert tools.env["UV_DEFAULT_INDEX"] == "https://pip.example/simple"
    assert tools.env["UV_INDEX"] == "https://uv.example/simple"
    assert not any(name.startswith("PIP_") for name in tools.env)
    assert tools.shown == (certificates,)


def test_a_layers_key_does_not_depend_on_a_password() -> None:
    old, new = ({"UV_DEFAULT_INDEX": f"https://reader:{word}@x.example/simple"} for word in ("one", "two"))
    assert indexes_of(old) == indexes_of(new) == (("UV_DEFAULT_INDEX", "https://x.example/simple"),)


@pytest.mark.parametrize(
    ("env", "there"),
    [
        ({}, False),
        ({"UV_DEFAULT_INDEX": "https://x.example/simple"}, False),
        ({"UV_INDEX": "https://x.example/simple other=https://token@y.example/simple"}, True),
        ({"HTTPS_PROXY": "http://me@proxy.example:3128"}, True),
    ],
)
def test_a_password_among_the_variables_is_seen(env: dict[str, str], there: bool) -> None:
    assert has_password(env) == there


@pytest.mark.parametrize(
    ("level", "env", "safe"),
    [
        ("namespaces", {}, True),
        ("namespaces", {"UV_INDEX": "https://token@y.example/simple"}, False),
        ("limits", {}, False),
    ],
)
def test_sources_are_built_where_their_code_reads_nothing_that_is_not_its_own(
    tmp_path: Path, level: str, env: dict[str, str], safe: bool
) -> None:
    cache = UvCache(tmp_path, most_bytes=0)
    assert find_installer(found(level), python=PYTHON, env=env, cache=cache, limits=LIMITS).sources_safe == safe


def test_without_a_sandbox_or_a_python_nothing_is_installed(tmp_path: Path) -> None:
    cache = UvCache(tmp_path, most_bytes=0)
    without = find_installer(found("none"), python=PYTHON, env={}, cache=cache, limits=LIMITS)
    assert isinstance(without.installer, NoInstaller)
    no_python = find_installer(found("namespaces"), python=None, env={}, cache=cache, limits=LIMITS)
    assert isinstance(no_python.installer, NoInstaller)


async def test_a_cache_that_is_too_large_begins_anew_once_nobody_has_it(tmp_path: Path) -> None:
    cache = UvCache(tmp_path / "packages", most_bytes=10)
    cache.open()
    async with cache.lent() as folder:
        (folder / "wheel").write_bytes(bytes(11))
        await cache.sweep()
        assert (folder / "wheel").exists(), "somebody has it"
    await cache.sweep()
    assert [path.name for path in folder.parent.iterdir() if path.name != ".lock"] == ["uv"]
    assert list(folder.iterdir()) == []
    with (folder.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_is_printed_goes_on_but_for_places_and_the_error_that_is_quoted() -> None:
    told: list[str] = []
    output = Output(told.append, "/data/spool/x/")
    for line in ("Using CPython 3.11", "Building /data/spool/x/a.whl", "", "error: first", "  cause: second", "third"):
        output.line(line)
    assert told == ["Building a.whl"]
    output.tell_rest("error: first\n  cause: second")
    assert told == ["Building a.whl", "third"]
