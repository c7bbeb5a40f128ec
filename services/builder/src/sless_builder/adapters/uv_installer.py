"""Installer: uv (docs.astral.sh/uv), each run a step of the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sless_platform.errors import Unavailable
from sless_platform.logging import get_logger
from sless_platform.telemetry import spanned

from sless_builder.adapters.interpreter import interpreter_files
from sless_builder.adapters.uv_cache import UvCache, folder_size, private_cache
from sless_builder.adapters.uv_output import Output
from sless_builder.application.finishing import in_thread
from sless_builder.domain.build import UserError
from sless_builder.domain.install_failure import NeedsSources as FailsForSources
from sless_builder.domain.install_failure import PlatformFault, failure_of
from sless_builder.domain.manifest import Manifest, Origin, Requirement
from sless_builder.domain.steps import Step, StepLimits
from sless_builder.ports import Sandbox
from sless_builder.ports.installing import Job, Lock, NeedsSources

MOUNTED_AT: Final = "/opt/sless/dependencies"
"""Where instances see a dependency layer: compiled modules name it in tracebacks."""

_ENVIRONMENT: Final = {
    "HOME": "/tmp",  # noqa: S108 - the sandbox's own
    "LANG": "C.UTF-8",
    "UV_HTTP_RETRIES": "2",
    "UV_LINK_MODE": "copy",
    "UV_NO_CONFIG": "1",
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
}
_LEAST_SEC: Final = 1.0
_ERRORS_ALONE: Final = ("/bin/sh", "-c", 'exec "$@" >/dev/null', "sh")
"""What was resolved goes to a file, and need not be printed too."""
_UNREACHABLE: Final = PlatformFault(
    "the package index can't be reached, and not all packages are in the cache", unreachable=True
)

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Tools:
    """Programs and what they are told.

    uv     the installer.
    python  the runtime's interpreter.
    env    variables that name indexes, proxies and certificates; for these steps alone.
    shown  files that those variables name.
    """

    uv: Path
    python: Path
    env: Mapping[str, str]
    shown: tuple[Path, ...] = ()


class UvInstaller:
    """Installs by uv.

    The cache that all share is written by steps alone that run nobody's code: wheels are unpacked, no more. A step that may
    build a source, or that takes files from elsewhere than the platform's index, has a cache of its own, gone with its build:
    what it puts there can reach nobody else.
    """

    def __init__(self, *, sandbox: Sandbox, tools: Tools, shared: UvCache | None, limits: StepLimits) -> None:
        """`shared`: the cache of all; None where steps are not kept from each other's files."""
        self._sandbox = sandbox
        self._tools = tools
        self._shared = shared
        self._limits = limits

    @spanned("resolve")
    async def resolve(self, job: Job, output: Callable[[str], None]) -> Lock:
        """See Installer."""
        await in_thread(_write_manifest, job)
        out = job.folder / f"resolved-{job.sources:d}"
        await in_thread(out.mkdir)
        lock = out / "lock.txt"
        arguments = ("compile", "requirements.txt", *_constraints(job.manifest), "--generate-hashes", "--no-header")
        offline = await self._run(
            job, (*arguments, "--no-annotate", "--output-file", str(lock)), (out,), output, offline=False
        )
        return Lock(await in_thread(lock.read_text), offline)

    @spanned("install")
    async def install(self, job: Job, lock: Lock | None, output: Callable[[str], None]) -> Path:
        """See Installer."""
        await in_thread(_write_manifest, job)
        modules = job.folder / f"modules-{job.sources:d}"
        await in_thread(modules.mkdir)
        if lock is None:
            chosen: tuple[str, ...] = ("requirements.txt", *_constraints(job.manifest))
        else:
            await in_thread((job.given / ".lock.txt").write_text, lock.text)
            chosen = (".lock.txt", "--no-deps")
        arguments = ("install", "--requirements", *chosen, "--require-hashes", "--target", str(modules))
        await self._run(job, arguments, (modules,), output, offline=lock is not None and lock.offline)
        await self._compile(job, modules)
        return modules

    async def _run(
        self,
        job: Job,
        arguments: Sequence[str],
        writable: tuple[Path, ...],
        output: Callable[[str], None],
        *,
        offline: bool,
    ) -> bool:
        """Run uv; gives whether it had to do without the index, which only a cache that was filled before allows."""
        private = self._shared is None or job.sources or not job.manifest.shared
        async with private_cache(job.folder) if self._shared is None or private else self._shared.lent() as cache:
            argv = self._argv(job.manifest, arguments, cache=cache, sources=job.sources)
            folders = (cache, *writable)
            fault = _UNREACHABLE if offline else await self._attempt(job, argv, folders, output)
            if fault is None:
                return False
            if private or not fault.unreachable:
                raise Unavailable(fault.message)
            if await self._attempt(job, (*argv, "--offline"), folders, output, network=False) is not None:
                raise Unavailable(fault.message)
        output("warning: the package index can't be reached; everything was taken from the cache")
        return True

    async def _attempt(
        self,
        job: Job,
        argv: Sequence[str],
        writable: tuple[Path, ...],
        output: Callable[[str], None],
        *,
        network: bool = True,
    ) -> PlatformFault | None:
        """One run; None when it succeeded. Offline, whatever fails is the index's absence."""
        printed = Output(output, str(job.given) + "/")
        limits = await self._left(job, writable[0])
        step = await self._step(job, argv, writable, limits, network=network)
        end = await self._sandbox.run(step, printed.line)
        if end.succeeded:
            return None
        failure = failure_of(end, printed.lines, job.manifest, self._limits)
        if isinstance(failure, PlatformFault):
            log.warning("installer failed", end=str(end), said=printed.lines[-20:])
            return failure
        if not network:
            return _UNREACHABLE
        if isinstance(failure, FailsForSources):
            raise NeedsSources(failure.problem)
        printed.tell_rest(failure.quote)
        raise UserError(failure)

    async def _compile(self, job: Job, modules: Path) -> None:
        """Compile what was installed, so that no start does it again; what can't be compiled is left as it is."""
        arguments = ("-qq", "-s", str(modules), "-p", MOUNTED_AT, "--invalidation-mode", "unchecked-hash", str(modules))
        argv = (str(self._tools.python), "-I", "-S", "-W", "ignore", "-m", "compileall", *arguments)
        limits = await self._left(job, modules)
        end = await self._sandbox.run(
            await self._step(job, argv, (modules,), limits, network=False), lambda _line: None
        )
        if end.exceeded is not None or end.signal is not None:
            failure = failure_of(end, (), job.manifest, self._limits)
            if isinstance(failure, PlatformFault):
                raise Unavailable(failure.message)
            if not isinstance(failure, FailsForSources):
                raise UserError(failure)

    def _argv(self, manifest: Manifest, arguments: Sequence[str], *, cache: Path, sources: bool) -> tuple[str, ...]:
        return (
            *_ERRORS_ALONE,
            *(str(self._tools.uv), "pip", *arguments),
            *("--python", str(self._tools.python), "--cache-dir", str(cache)),
            *(() if sources else ("--no-build",)),
            *_choices(manifest, sources=sources),
        )

    async def _step(
        self, job: Job, argv: Sequence[str], writable: tuple[Path, ...], limits: StepLimits, *, network: bool
    ) -> Step:
        interpreter = await in_thread(interpreter_files, self._tools.python)
        path = f"{self._tools.python.parent}:/usr/local/bin:/usr/bin:/bin"
        return Step(
            argv=tuple(argv),
            env={**_ENVIRONMENT, **self._tools.env, "PATH": path},
            shown=(self._tools.uv, *interpreter, *self._tools.shown, job.given),
            writable=writable,
            cwd=job.given,
            limits=limits,
            network=network,
        )

    async def _left(self, job: Job, cache: Path) -> StepLimits:
        """The limits of the next step: what is left of the build's time, and the disk beside what the cache has already."""
        seconds = max(job.deadline - asyncio.get_running_loop().time(), _LEAST_SEC)
        disk = self._limits.disk_bytes + await folder_size(cache)
        return replace(self._limits, seconds=seconds, disk_bytes=disk)


def _write_manifest(job: Job) -> None:
    for name, items in (
        ("requirements.txt", job.manifest.requirements),
        (".constraints.txt", job.manifest.constraints),
    ):
        (job.given / name).write_text("".join(f"{_written(item)}\n" for item in items))
    for path in (job.given, *job.given.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _written(item: Requirement) -> str:
    text = f"./{item.text}" if item.origin is Origin.ARCHIVE else item.text
    return text + item.options


def _constraints(manifest: Manifest) -> tuple[str, ...]:
    return ("--constraints", ".constraints.txt") if manifest.constraints else ()


def _choices(manifest: Manifest, *, sources: bool) -> list[str]:
    """The author's options as uv has them."""
    arguments: list[str] = []
    for name, value in manifest.choices:
        if name == "--pre":
            arguments += ["--prerelease", "allow"]
        elif name == "--only-binary" or (name == "--no-binary" and sources):
            arguments.append(f"{name}={value}")
    for name, value in manifest.indexes:
        if name == "--trusted-host":
            arguments.append(f"--allow-insecure-host={value}")
        else:
            arguments.append(f"{name}={value}" if value else name)
    return arguments
