"""What code asks for, read from its files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sless_builder.domain.build import Problem, UserError
from sless_builder.domain.dependencies import Setting, modules_in
from sless_builder.domain.manifest import Manifest, Origin
from sless_builder.domain.requirements import manifest_of

SETTING = Setting("python3.11", "amd64", (("UV_DEFAULT_INDEX", "https://index.example/simple"),))
DIGEST, OTHER_DIGEST = (f"sha256:{letter * 64}" for letter in "ab")


def read(files: Mapping[str, bytes] | bytes, *, allow_indexes: bool = False) -> Manifest:
    """The manifest of an archive; of a requirements.txt alone."""
    contents = {"requirements.txt": files} if isinstance(files, bytes) else files
    return manifest_of(contents.keys(), contents.__getitem__, allow_indexes=allow_indexes)


def refusal(files: Mapping[str, bytes] | bytes) -> Problem:
    """What is wrong with it."""
    with pytest.raises(UserError) as raised:
        read(files)
    assert raised.value.problem.reason == "REQUIREMENTS_INVALID"
    return raised.value.problem


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n\n",
        b"# only\n  # comments\n",
        b"\xef\xbb\xbf# with a mark\r\n",
        "# from a Windows shell\r\n".encode("utf-16"),
        b"--prefer-binary\n--pre\n--only-binary :all:\n",
    ],
)
def test_a_file_that_asks_for_nothing_asks_for_nothing(text: bytes) -> None:
    assert read(text).requirements == ()
    assert read(text).warnings == ()


@pytest.mark.parametrize(
    ("text", "line", "asked", "package"),
    [
        (b"requests\n", 1, "requests", "requests"),
        (b"# x\n\nFlask[async]>=2 ; python_version > '3' # why\n", 3, 'Flask[async]>=2; python_version > "3"', "flask"),
        (b"a \\\n  ==1.0\n", 1, "a==1.0", "a"),
        ("numpy\r\n".encode("utf-16"), 1, "numpy", "numpy"),
        (b"last-without-newline==1 \\", 1, "last-without-newline==1", "last-without-newline"),
        (b"Zope.Interface", 1, "Zope.Interface", "zope-interface"),
    ],
)
def test_a_requirement_is_known_by_its_line(text: bytes, line: int, asked: str, package: str) -> None:
    (found,) = read(text).requirements
    assert (found.line.number, found.text, found.name, found.origin) == (line, asked, package, Origin.INDEX)


def test_hashes_belong_to_their_requirement() -> None:
    manifest = read(f"a==1 \\\n    --hash={DIGEST} \\\n    --hash={OTHER_DIGEST}\nb==2\n".encode())
    assert manifest.requirements[0].text == "a==1"
    assert len(manifest.requirements[0].hashes) == 2
    assert manifest.hashed
    assert not read(b"a==1\n").hashed
    assert read(b"--require-hashes\na==1\n").hashed


def test_included_files_lie_beside_the_one_that_names_them() -> None:
    files = {
        "requirements.txt": b"-r lists/web.txt\n--constraint=lists/limits.txt\n",
        "lists/web.txt": b"-rmore.txt\nflask\n-r ../requirements.txt\n",
        "lists/more.txt": b"six\n",
        "lists/limits.txt": b"six<2\n",
    }
    manifest = read(files)
    assert [item.text for item in manifest.requirements] == ["six", "flask"]
    assert [item.text for item in manifest.constraints] == ["six<2"]
    line = manifest.line_of("flask")
    assert line is not None
    assert line.where == "lists/web.txt line 2"


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (b"\n-r other.txt\n", 2, "there is no file other.txt in the code"),
        (b"-r ../other.txt\n", 1, "leaves the archive"),
        (b"-r /etc/passwd\n", 1, "leaves the archive"),
        (b"-r a/../../x.txt\n", 1, "leaves the archive"),
        (b"-r https://example.com/x.txt\n", 1, "only files of the archive"),
        (b"-e .\n", 1, "nothing is installed in place"),
        (b"six\n./lib\n", 2, "folders are not installed"),
        (b"./x.whl\n", 1, "there is no file x.whl"),
        (b"../x.whl\n", 1, "leaves the archive"),
        (b"x @ file:///etc/passwd\n", 1, "only https addresses"),
        (b"git+https://example.com/x.git#egg=x\n", 1, "repositories are not installed from"),
        (b"x @ git+ssh://example.com/x.git\n", 1, "repositories are not installed from"),
        (b"https://example.com/x.whl\n", 1, "name the package before its address"),
        (b"x @ https://example.com/${UV_DEFAULT_INDEX}\n", 1, "variables are not filled in"),
        (b"a=1\n", 1, "`a=1` is no requirement"),
        (b"caf\xe9\n", 1, "is no requirement"),
        (b"--unheard-of\n", 1, "the option --unheard-of is not known here"),
        (b"a --hash=md5:00\n", 1, "md5:00 is no hash"),
        (b"--pre 'x\n", 1, "a quote is not closed"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_its_line(text: bytes, line: int, told: str) -> None:
    problem = refusal(text)
    assert (problem.file, problem.line) == ("requirements.txt", line)
    assert problem.message.startswith(f"requirements.txt line {line}: ")
    assert told in problem.message
    assert problem.quote


def test_index_options_are_passed_over_with_a_warning_unless_operators_allow_them() -> None:
    text = b"-i https://other.example/simple\n--trusted-host other.example\nsix\n"
    manifest = read(text)
    assert (manifest.indexes, manifest.shared) == ((), True)
    assert manifest.warnings[0] == (
        "requirements.txt line 1: --index-url is ignored; packages come from the platform's index"
    )
    allowed = read(text, allow_indexes=True)
    assert allowed.indexes[0] == ("--index-url", "https://other.example/simple")
    assert not allowed.shared


def test_a_project_is_read_without_its_groups_and_extras() -> None:
    project = (
        b"[project]\nname = 'x'\ndependencies = [\n 'httpx>=1',\n]\n"
        b"[project.optional-dependencies]\ntest = ['pytest']\n[dependency-groups]\ndev = ['ruff']\n"
    )
    (found,) = read({"pyproject.toml": project}).requirements
    assert (found.text, found.line.where) == ("httpx>=1", "pyproject.toml line 4")
    assert read({"pyproject.toml": project, "requirements.txt": b""}).requirements == ()
    for text in (b"[project]\nname='x'\n", b"[project]\ndependencies=[]\n", b"[tool.ruff]\nx=1\n", b"project=1\n"):
        assert read({"pyproject.toml": text}).requirements == ()
    assert refusal({"pyproject.toml": b"x = 1\n[project\n"}).line == 2
    assert "must be a list" in refusal({"pyproject.toml": b"[project]\ndependencies = 'six'\n"}).message
    poetry = b"[tool.poetry.dependencies]\nsix = '*'\n"
    assert "tool.poetry.dependencies is not read" in read({"pyproject.toml": poetry}).warnings[0]


# -- what a layer is made from


def test_what_asks_for_the_same_has_the_same_key() -> None:
    first = read(b"six\nflask>=2\n# comment\n")
    second = read(b"flask >= 2\n\nsix # more\n")
    assert SETTING.manifest_key(first, "one") == SETTING.manifest_key(second, "two")
    others = [read(text) for text in (b"six\n", b"six\nflask>=3\n", b"--pre\nsix\nflask>=2\n")]
    assert len({SETTING.manifest_key(manifest, "one") for manifest in (first, *others)}) == 4
    elsewhere = Setting("python3.11", "amd64", ())
    assert SETTING.manifest_key(first, "one") != elsewhere.manifest_key(first, "one")


def test_what_does_not_come_from_the_index_alone_is_a_namespaces_own() -> None:
    vendored = {"requirements.txt": b"./w/x-1-py3-none-any.whl\n", "w/x-1-py3-none-any.whl": b"one"}
    for manifest in (read(b"x @ https://example.com/x.whl\n"), read(vendored)):
        assert not manifest.shared
        assert SETTING.manifest_key(manifest, "one") != SETTING.manifest_key(manifest, "two")
        assert SETTING.lock_key("x==1", manifest, "one") != SETTING.lock_key("x==1", manifest, "two")
    changed = read({**vendored, "w/x-1-py3-none-any.whl": b"two"})
    assert SETTING.manifest_key(read(vendored), "one") != SETTING.manifest_key(changed, "one")
    assert read(b"six\n").shared


def test_modules_are_what_lies_at_the_top() -> None:
    paths = [
        "six.py",
        "flask/__init__.py",
        "_native.cpython-311-x86_64-linux-gnu.so",
        "six-1.dist-info/RECORD",
        "x.txt",
    ]
    assert modules_in(paths) == ("_native", "flask", "six")


@given(st.binary(max_size=300))
def test_any_file_can_be_judged(text: bytes) -> None:
    with suppress(UserError):
        assert read(text).text()
