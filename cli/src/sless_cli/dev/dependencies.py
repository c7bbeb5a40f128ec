"""What the code asks for from the package index: installed once for each content, into a cache folder."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sless_cli.embedded.linux import die_with_parent
from sless_cli.errors import CliError
from sless_cli.home import xdg_folder

_REQUIREMENTS = "requirements.txt"
_PROJECT = "pyproject.toml"
_INCLUDE = re.compile(r"(?:-r|--requirement|-c|--constraint)[ =]*(?P<file>\S+)")


@dataclass(frozen=True, slots=True)
class Wanted:
    """file     that says what is needed
    digest   of all that says so: the same digest means the same dependencies
    """

    file: Path
    digest: str


def wanted_by(folder: Path, python: Path) -> Wanted | None:
    """What the folder's requirements.txt asks for, else its pyproject.toml; None when that is nothing. Raises CliError."""
    requirements, project = folder / _REQUIREMENTS, folder / _PROJECT
    try:
        if requirements.is_file():
            texts = list(_with_included(requirements, folder))
            asks = any(_asks(line) for text in texts for line in text.splitlines())
            return Wanted(requirements, _digest(python, *texts)) if asks else None
        if project.is_file():
            asked = tomllib.loads(project.read_text()).get("project", {}).get("dependencies", [])
            return Wanted(project, _digest(python, *map(str, asked))) if asked else None
    except (OSError, ValueError) as error:
        raise CliError(f"what {folder} depends on cannot be read: {error}") from error
    return None


class Installer:
    """Installs with uv; what was installed before is there at once."""

    def __init__(self, folder: Path, python: Path, environ: Mapping[str, str], note: Callable[[str], None]) -> None:
        self._folder = folder
        self._python = python
        self._cache = xdg_folder(environ, "XDG_CACHE_HOME", ".cache") / "sless" / "dependencies"
        self._note = note

    async def __call__(self) -> Path | None:
        """The folder of the dependencies; None when there are none. Raises CliError."""
        wanted = wanted_by(self._folder, self._python)
        if wanted is None:
            return None
        target = self._cache / wanted.digest
        if not target.is_dir():
            self._note(f"installing what {wanted.file.name} asks for, into {target}")
            await self._install(wanted.file, target)
        return target

    async def _install(self, file: Path, target: Path) -> None:
        try:
            self._cache.mkdir(parents=True, exist_ok=True)
            half = tempfile.TemporaryDirectory(dir=self._cache, prefix="half-")
        except OSError as error:
            raise CliError(f"cannot write below {self._cache}: {error.strerror or error}") from error
        with half as folder:
            made = Path(folder) / "made"
            await self._run_uv(file, made)
            _keep(made, target)

    async def _run_uv(self, file: Path, target: Path) -> None:
        from uv import find_uv_bin

        parent = os.getpid()
        process = await asyncio.create_subprocess_exec(
            *(find_uv_bin(), "pip", "install", "--python", str(self._python), "--target", str(target)),
            *("--compile-bytecode", "-r", str(file)),
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
        )
        try:
            code = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if code != 0:
            raise CliError(f"what {file.name} asks for could not be installed (uv ended with {code}, see above)")


def _keep(made: Path, target: Path) -> None:
    try:
        made.rename(target)
    except OSError as error:
        # Somebody else may have made the same meanwhile.
        if not target.is_dir():
            raise CliError(f"cannot write {target}: {error.strerror or error}") from error


def _asks(line: str) -> bool:
    stripped = line.partition("#")[0].strip()
    return (bool(stripped) and not stripped.startswith("-")) or stripped.startswith(("-e", "--editable"))


def _with_included(file: Path, folder: Path) -> Iterator[str]:
    """The text of a requirements file and of those that it names, each once."""
    seen: set[Path] = set()
    left = [file]
    while left:
        path = left.pop().resolve()
        if path in seen:
            continue
        seen.add(path)
        text = path.read_text()
        yield text
        left += [path.parent / match["file"] for line in text.splitlines() if (match := _INCLUDE.match(line.strip()))]


def _digest(python: Path, *texts: str) -> str:
    digest = hashlib.sha256(str(python).encode())
    for text in texts:
        digest.update(b"\0" + text.encode())
    return digest.hexdigest()[:32]
