"""Dependency layers, from a requirements.txt to what can be imported; packages come from an index of the test's own."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import AsyncIterator, Iterator

import pytest
from sless.registry.v1 import registry_pb2

from tests.support import archives
from tests.support.builder import BUILT, FAILED, BuilderClient, BuilderPlace, python311, running_builder, until
from tests.support.package_index import Index, package_index, wheel

RUN = "import sys; sys.path[:0] = sys.argv[1:]; import handler; print(handler.handle({}))"


@pytest.fixture
def index() -> Iterator[Index]:
    """An empty index."""
    with package_index() as running:
        yield running


@pytest.fixture
async def builder(place: BuilderPlace, index: Index) -> AsyncIterator[BuilderClient]:
    """A builder that installs from the index."""
    place.variables["SLESS_INSTALL_ENV"] = json.dumps({"UV_DEFAULT_INDEX": index.url, "UV_HTTP_RETRIES": "0"})
    async with place.registry.invoker(), running_builder(place) as client:
        await client.create()
        yield client


def code(handler: str, requirements: str = "", **more: str | bytes) -> bytes:
    """An archive with a handler and a requirements.txt."""
    files: dict[str, str | bytes] = {"handler.py": handler, **more}
    return archives.zip_of(files | ({"requirements.txt": requirements} if requirements else {}))


def returning(value: str, imports: str) -> str:
    """A handler that imports something and returns an expression."""
    return f"import {imports}\n\ndef handle(event):\n    return {value}\n"


async def ended(builder: BuilderClient, archive: bytes, name: str = "hello") -> registry_pb2.Version:
    """A version once it is built or failed."""
    uploaded = await builder.upload(archive, name)
    return await builder.ended(uploaded.version.version, name)


async def built(builder: BuilderClient, archive: bytes, name: str = "hello") -> registry_pb2.Version:
    """A version that is built."""
    version = await ended(builder, archive, name)
    assert version.state == BUILT, version.message
    return version


async def failed(builder: BuilderClient, archive: bytes) -> registry_pb2.BuildError:
    """What is wrong with a version."""
    version = await ended(builder, archive)
    assert version.state == FAILED
    assert len(version.message) <= 2_000
    assert version.error.message in version.message
    await builder.place.idle()
    return version.error


def answer(place: BuilderPlace, version: registry_pb2.Version) -> str:
    """What the handler returns when it runs from the version's layers."""
    folders = [str(place.folder / "layers" / layer.removeprefix("sha256:")) for layer in reversed(version.layers[1:])]
    command = [str(python311()), "-I", "-S", "-c", RUN, *folders]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


async def runs(builder: BuilderClient) -> int:
    """How often a sandbox was begun, all builds together."""
    return sum(row["runs"] for row in await builder.place.rows("SELECT runs FROM builds"))


async def test_packages_are_installed_into_a_layer_of_their_own(builder: BuilderClient, index: Index) -> None:
    index.add_wheel("alpha", "1.0", requires=("beta>=2",))
    index.add_wheel("beta", "1.0")
    index.add_wheel("beta", "2.5")
    version = await built(builder, code(returning("(alpha.VERSION, beta.VERSION)", "alpha, beta"), "alpha\n"))
    assert len(version.layers) == 3
    assert answer(builder.place, version) == "('1.0', '2.5')"
    layer = builder.place.folder / "layers" / version.layers[1].removeprefix("sha256:")
    assert (layer / "__pycache__/alpha.cpython-311.pyc").read_bytes()[4:8] == b"\x01\x00\x00\x00"
    log = await builder.log()
    assert "installing 1 requirement of requirements.txt" in log
    assert " + beta==2.5" in log
    assert "warning" not in log


# -- what is made once


@pytest.mark.fault(16)
async def test_unchanged_requirements_are_installed_once_whatever_is_destroyed_meanwhile(
    builder: BuilderClient, index: Index
) -> None:
    index.add_wheel("alpha", "1.0")
    first = await built(builder, code(returning("alpha.VERSION", "alpha"), "alpha\n"))
    index.broken = 503
    changed = await built(builder, code(returning("alpha.VERSION * 2", "alpha"), "# a comment\nalpha  # more\n"))
    assert (list(changed.layers[:2]), changed.cached) == (list(first.layers[:2]), False)
    await builder.delete()
    await builder.create()
    again = await built(builder, code(returning("alpha.VERSION", "alpha"), "alpha\n"))
    assert list(again.layers) == list(first.layers)
    assert "there already: nothing to install" in await builder.log()
    assert "installing" not in await builder.log()
    await builder.create("twin")
    twin = await built(builder, code(returning("alpha.VERSION", "alpha"), "alpha\n"), "twin")
    assert (twin.cached, list(twin.layers)) == (True, list(first.layers))
    (counted,) = await builder.place.rows("SELECT runs FROM builds WHERE name = 'twin'")
    assert counted["runs"] == 0


async def test_what_resolves_to_the_same_packages_is_one_layer(builder: BuilderClient, index: Index) -> None:
    index.add_wheel("alpha", "1.0", requires=("beta",))
    index.add_wheel("beta", "1.0")
    first = await built(builder, code(returning("1", "alpha"), "alpha\n"))
    second = await built(builder, code(returning("1", "alpha"), "alpha>=0.5\nbeta==1.0\n"))
    assert first.layers[1] == second.layers[1]
    assert "nothing to install" in await builder.log(2)
    assert [row["made"] for row in await builder.place.rows("SELECT made FROM layers WHERE facts ? 'modules'")] == [
        True,
        False,
        False,
    ]


async def test_installed_anew_it_is_the_same_layer(builder: BuilderClient, index: Index) -> None:
    index.add_wheel("alpha", "1.0", {"alpha.py": "S = {'b', 'a'}\nx = 1 in {3, 2, 1}\n", "pkg/__init__.py": ""})
    archive, place = code(returning("1", "alpha"), "alpha\n"), builder.place
    first = await built(builder, archive)
    for folder in ("objects/layers/sha256", "layers"):
        (place.folder / folder / first.layers[1].removeprefix("sha256:")).rename(place.folder / f"old-{len(folder)}")
    await place.rows("DELETE FROM layers")
    await builder.create("again")
    again = await built(builder, archive, "again")
    assert "installing" in await builder.log(1, "again")
    assert list(again.layers) == list(first.layers)


async def test_two_builds_that_ask_for_the_same_at_once_install_it_once(builder: BuilderClient, index: Index) -> None:
    index.add_wheel("alpha", "1.0")
    await builder.create("other")
    await builder.upload(code(returning("1", "alpha"), "alpha\n"))
    await builder.upload(code(returning("2", "alpha"), "alpha\n"), "other")
    first, second = await builder.ended(1, "hello"), await builder.ended(1, "other")
    assert first.layers[1] == second.layers[1]
    assert await runs(builder) == 3, "two compiled, one installed"


async def test_without_the_index_what_is_in_the_cache_is_enough(builder: BuilderClient, index: Index) -> None:
    index.add_wheel("alpha", "1.0")
    index.add_wheel("beta", "1.0")
    await built(builder, code(returning("1", "alpha"), "alpha\nbeta\n"))
    index.stop()
    version = await built(builder, code(returning("alpha.VERSION", "alpha"), "alpha\n"))
    assert answer(builder.place, version) == "1.0"
    assert "the package index can't be reached; everything was taken from the cache" in await builder.log(2)


# -- what may be asked for


async def test_hashes_extras_constraints_and_included_files(builder: BuilderClient, index: Index) -> None:
    index.add_wheel("alpha", "1.0", extras={"more": ("beta",)})
    index.add_wheel("beta", "1.0")
    index.add_wheel("beta", "2.0")
    files = {"lists/more.txt": "-c limits.txt\nalpha[more]\n", "lists/limits.txt": "beta<2\n"}
    version = await built(
        builder, code(returning("beta.VERSION", "beta"), "-r lists/more.txt\n-i http://x/\n", **files)
    )
    assert answer(builder.place, version) == "1.0"
    log = await builder.log()
    assert "warning: requirements.txt line 2: --index-url is ignored; packages come from the platform's index" in log
    digest = index.add_wheel("gamma", "1.0")
    hashed = await built(builder, code(returning("gamma.VERSION", "gamma"), f"gamma==1.0 --hash=sha256:{digest}\n"))
    assert answer(builder.place, hashed) == "1.0"


async def test_a_pyproject_is_followed_without_its_development_groups(builder: BuilderClient, index: Index) -> None:
    index.add_wheel("alpha", "1.0")
    project = "[project]\nname = 'x'\ndependencies = ['alpha']\n[dependency-groups]\ndev = ['no-such-tool']\n"
    version = await built(builder, code(returning("alpha.VERSION", "alpha"), **{"pyproject.toml": project}))
    assert answer(builder.place, version) == "1.0"


async def test_comments_alone_make_no_layer(builder: BuilderClient, index: Index) -> None:
    version = await built(builder, code(archives.HANDLER, "# nothing\n\n"))
    assert len(version.layers) == 2
    assert index.asked == []


async def test_a_wheel_in_the_archive_is_installed(builder: BuilderClient) -> None:
    vendored = {"wheels/beta-1.0-py3-none-any.whl": wheel("beta", "1.0")}
    version = await built(
        builder, code(returning("beta.VERSION", "beta"), "./wheels/beta-1.0-py3-none-any.whl\n", **vendored)
    )
    assert answer(builder.place, version) == "1.0"


async def test_a_package_without_a_wheel_is_built_apart_from_the_shared_cache(
    builder: BuilderClient, index: Index
) -> None:
    index.add_wheel("alpha", "1.0")
    shared = builder.place.folder / "packages" / "uv"
    tries = f"assert not os.path.exists({str(shared)!r})\nos.makedirs({str(shared)!r}, exist_ok=True)"
    index.add_source(
        "packed", "1.0", f"try:\n{textwrap.indent(tries, '    ')}\nexcept OSError: pass\nos.mkdir('closed', 0)"
    )
    version = await built(builder, code(returning("packed.VERSION", "packed"), "alpha\npacked\n"))
    assert answer(builder.place, version) == "1.0"
    log = await builder.log()
    assert "packed has no wheel for this platform: it is built from its source" in log
    cached = {path.name for path in (builder.place.folder / "packages").rglob("*")}
    assert "alpha.rkyv" in cached
    assert not cached & {"packed.py", "packed-1.0-py3-none-any.whl"}


async def test_native_wheels_of_this_platform_are_taken(builder: BuilderClient, index: Index) -> None:
    index.add_wheel("native", "1.0", {"native.py": "KIND = 'linux'\n"}, tag="cp311-cp311-manylinux2014_x86_64")
    index.add_wheel("native", "1.0", {"native.py": "KIND = 'windows'\n"}, tag="cp311-cp311-win_amd64")
    version = await built(builder, code(returning("native.KIND", "native"), "native\n"))
    assert answer(builder.place, version) == "linux"


# -- warnings


async def test_an_import_that_nothing_has_is_warned_about(builder: BuilderClient, index: Index) -> None:
    index.add_wheel("alpha", "1.0")
    handler = (
        "import json, alpha, absent.part\nfrom other import there\n\ntry:\n    import fast\nexcept ImportError:\n"
        "    fast = None\n\ndef handle(event):\n    import late\n"
    )
    files = {"other.py": "there = 1\nimport besides\n", "unused.py": "import nothing_like_this\n"}
    await built(builder, code(handler, "alpha\n", **files))
    log = await builder.log()
    has = "which neither the standard library nor the dependencies have"
    for file, line, name in (("handler.py", 1, "absent"), ("handler.py", 10, "late"), ("other.py", 2, "besides")):
        assert f"warning: {file} line {line} imports '{name}', {has}" in log
    assert log.count("warning:") == 3
    await builder.create("twin")
    await built(builder, code(handler, "alpha\n", **files), "twin")
    assert (await builder.log(1, "twin")).count("warning:") == 3


# -- what fails


FAILING_BUILDS = {
    "an exception": ("raise RuntimeError('no compiler for you')", "BUILD_BACKEND_FAILED", "no compiler for you"),
    "time": ("print('begun', flush=True); time.sleep(600)", "BUILD_TIMEOUT", "took longer than"),
    "disk": ("for n in range(999): open(str(n), 'wb').write(bytes(1 << 22))", "DISK_LIMIT", "MiB of disk"),
}


@pytest.mark.fault(10)
@pytest.mark.parametrize(
    ("requirements", "reason", "package", "line", "told"),
    [
        ("# one\nno-such-thing\n", "PACKAGE_NOT_FOUND", "no-such-thing", 2, "was not found in the package registry"),
        ("alpha==9\n", "PACKAGE_NOT_FOUND", "alpha", 1, "there is no version of alpha==9"),
        ("windows\n", "PACKAGE_NOT_FOUND", "windows", 1, "win_amd64"),
        ("beta\nalpha==2.0\n", "VERSION_CONFLICT", "alpha", 2, "depend on alpha<2"),
        ("alpha==1.0\nalpha==2.0\n", "VERSION_CONFLICT", "alpha", 1, "unsatisfiable"),
        ("alpha=1\n", "REQUIREMENTS_INVALID", "", 1, "alpha=1"),
        (f"alpha==1.0 --hash=sha256:{'0' * 64}\n", "HASH_MISMATCH", "alpha", 1, "Computed:"),
        ("alpha==1.0 --hash=sha256:00\n", "REQUIREMENTS_INVALID", "", 1, "64 hexadecimal digits"),
        ("-r missing.txt\n", "REQUIREMENTS_INVALID", "", 1, "-r missing.txt"),
    ],
)
async def test_what_cannot_be_installed_names_package_line_and_the_tools_words(
    builder: BuilderClient, index: Index, requirements: str, reason: str, package: str, line: int, told: str
) -> None:
    index.add_wheel("alpha", "1.0")
    index.add_wheel("alpha", "2.0")
    index.add_wheel("beta", "1.0", requires=("alpha<2",))
    index.add_wheel("windows", "1.0", tag="cp311-cp311-win_amd64")
    error = await failed(builder, code(archives.HANDLER, requirements))
    assert (error.reason, error.package, error.file, error.line) == (reason, package, "requirements.txt", line)
    version = await builder.version(1)
    assert told in version.message
    assert str(builder.place.folder) not in await builder.log()

    async def trimmed() -> bool:
        return await builder.place.count("layers") == 0

    await until(trimmed, "what was made before goes")


@pytest.mark.fault(11)
@pytest.mark.parametrize("status", [503, 500, 429])
async def test_an_index_that_does_not_answer_is_the_platforms_fault(
    builder: BuilderClient, index: Index, status: int
) -> None:
    index.add_wheel("alpha", "1.0")
    index.broken = status

    async def tried() -> bool:
        rows = await builder.place.rows("SELECT failures FROM builds")
        return bool(rows) and rows[0]["failures"] > 0

    await builder.upload(code(returning("alpha.VERSION", "alpha"), "alpha\n"))
    await until(tried, "the build is put back")
    index.broken = None
    version = await builder.ended()
    assert version.state == BUILT
    assert "the platform failed (the package index can't be reached" in await builder.log()


@pytest.mark.parametrize("case", FAILING_BUILDS)
async def test_a_source_build_that_fails_says_how(place: BuilderPlace, index: Index, case: str) -> None:
    body, reason, told = FAILING_BUILDS[case]
    index.add_source("packed", "1.0", body)
    place.variables |= {
        "SLESS_INSTALL_ENV": json.dumps({"UV_DEFAULT_INDEX": index.url}),
        "SLESS_MAX_BUILD_SEC": 12,
        "SLESS_MAX_BUILD_DISK_BYTES": 64 << 20,
    }
    async with place.registry.invoker(), running_builder(place) as builder:
        await builder.create()
        error = await failed(builder, code(archives.HANDLER, "packed\n"))
        assert (error.reason, error.package, error.line) == (reason, "packed", 1)
        assert told in (await builder.version(1)).message
