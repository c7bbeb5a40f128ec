"""The sandbox that compiles source which nobody trusts."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sless_builder.adapters import step_usage
from sless_builder.adapters.bubblewrap import Bubblewrap, find_bwrap
from sless_builder.adapters.no_compiler import NoCompiler
from sless_builder.adapters.python_compiler import PythonCompilation, PythonCompiler
from sless_builder.domain.build import Problem, UserError
from sless_builder.ports import Module
from sless_platform.errors import Unavailable

from tests.support.builder import python311, until
from tests.support.steps import processes_with

UID = 199_998
AS_ROOT = os.geteuid() == 0


@pytest.fixture(autouse=True, params=["bubblewrap", "alone"])
def enclosure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """In what the compilers of a test run."""
    bwrap = find_bwrap()
    assert bwrap is not None
    monkeypatch.setitem(
        ENCLOSURE, "bubblewrap", Bubblewrap(bwrap, as_root=AS_ROOT) if request.param == "bubblewrap" else None
    )
    return str(request.param)


ENCLOSURE: dict[str, Bubblewrap | None] = {}


def compiler(python: Path | None = None, cpu_sec: int = 20, memory: int = 1 << 30) -> PythonCompiler:
    return PythonCompiler(
        python or python311(),
        uid=UID if AS_ROOT else None,
        cpu=timedelta(seconds=cpu_sec),
        memory_bytes=memory,
        bubblewrap=ENCLOSURE["bubblewrap"],
    )


async def compiled(source: bytes, cpu_sec: int = 20, memory: int = 1 << 30) -> Module | Problem:
    async with compiler(cpu_sec=cpu_sec, memory=memory).session() as session:
        return await session.compile("handler.py", source)


def pid_of(session: PythonCompilation) -> int:
    """The interpreter's process, whatever it runs in."""
    assert session._process is not None
    return step_usage.tree(session._process.pid)[-1]


async def test_the_process_has_no_user_environment_or_file_of_the_platforms() -> None:
    async with compiler().session() as session:
        assert isinstance(await session.compile("handler.py", b"x = 1\n"), Module)
        proc = Path(f"/proc/{pid_of(session)}")
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        limits = (proc / "limits").read_text()
        assert set(status["Uid"].split()) == {str(UID if AS_ROOT else os.geteuid())}
        if AS_ROOT:
            assert status["Groups"].split() == []
            assert int(status["CapEff"], 16) == 0
            assert {path.name for path in (proc / "fd").iterdir()} == {"0", "1", "2"}
            assert (proc / "environ").read_bytes() in (b"", b"PWD=/\0")
        assert "Max processes             0 " in limits
        assert "Max file size             0 " in limits
        assert "Max core file size        0 " in limits


@pytest.mark.parametrize("enclosure", ["bubblewrap"], indirect=True)
async def test_in_bubblewrap_it_sees_no_file_and_no_network_of_the_platforms(enclosure: str) -> None:
    async with compiler().session() as session:
        assert isinstance(await session.compile("handler.py", b"x = 1\n"), Module)
        proc = Path(f"/proc/{pid_of(session)}")
        for space in ("pid", "net", "mnt", "ipc", "uts"):
            assert (proc / "ns" / space).readlink() != Path(f"/proc/self/ns/{space}").readlink(), space
        assert not (proc / "root" / "home").exists()


async def test_the_process_is_gone_after_the_session() -> None:
    async with compiler().session() as session:
        await session.compile("handler.py", b"x = 1\n")
        pid = pid_of(session)
    async with asyncio.timeout(5):  # The kernel ends a sandbox's processes right after its own end.
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


async def test_the_same_source_compiles_to_the_same_bytes() -> None:
    source = (
        b"import os\nS = {'b', 'a'}\nF = lambda x: x in {'q', 'w', 'e'}\ndef f(a, b): return a + b + len('abc')\n" * 20
    )
    assert len({await compiled(source) for _ in range(5)}) == 1


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        (b"def x(:\n", 1, "invalid syntax"),
        (b"x = 1\n  y = 2\n", 2, "unexpected indent"),
        (b"if x:\n\ty\n        z\n", 3, "inconsistent use of tabs"),
        (b"(" * 100_000, 1, "too many nested parentheses"),
        (b"x = '\xff'\n", 1, "can't decode byte"),
        (b"# coding: no-such-thing\n", 0, "unknown encoding"),
        (b"x = 1\x00\n", 0, "null bytes"),
    ],
)
async def test_a_mistake_is_told_with_its_line(source: bytes, line: int, words: str) -> None:
    problem = await compiled(source)
    assert isinstance(problem, Problem)
    assert problem.reason == "SYNTAX_ERROR"
    assert problem.file == "handler.py"
    assert words in problem.message
    assert (problem.line or line) == line


async def test_the_line_at_fault_is_quoted_with_a_mark() -> None:
    problem = await compiled(b"def f():\n    return 1 +* 2\n")
    assert isinstance(problem, Problem)
    assert problem.quote == "return 1 +* 2\n          ^"


async def test_source_in_another_encoding_is_compiled() -> None:
    assert isinstance(await compiled("# coding: cp1251\nx = 'привет'\n".encode("cp1251")), Module)


@pytest.mark.parametrize("source", [b"x = " + b"-" * 200_000 + b"1\n", b"x = a" + b".b" * 200_000 + b"\n"])
async def test_source_that_is_too_deep_is_its_authors_fault_whatever_it_breaks(source: bytes) -> None:
    problem = await compiled(source)
    assert isinstance(problem, Problem)
    assert problem.reason in ("COMPILE_FAILED", "COMPILER_CRASHED", "SYNTAX_ERROR")


async def test_a_source_that_breaks_the_compiler_costs_the_others_nothing() -> None:
    async with compiler().session() as session:
        assert isinstance(await session.compile("a.py", b"x = 1\n"), Module)
        os.kill(pid_of(session), signal.SIGSEGV)
        problem = await session.compile("b.py", b"x = 2\n")
        assert isinstance(problem, Problem)
        assert (problem.reason, problem.file) == ("COMPILER_CRASHED", "b.py")
        assert isinstance(await session.compile("c.py", b"x = 3\n"), Module)


@pytest.mark.fault(11)
async def test_a_compiler_that_the_system_kills_is_the_platforms_fault() -> None:
    async with compiler().session() as session:
        await session.compile("a.py", b"x = 1\n")
        os.kill(pid_of(session), signal.SIGKILL)
        with pytest.raises(Unavailable, match="want of memory"):
            await session.compile("b.py", b"x = 2\n")


async def test_memory_is_bounded() -> None:
    problem = await compiled(b"x = [" + b"1.5, " * 3_000_000 + b"]\n", memory=300 << 20)
    assert isinstance(problem, Problem)
    assert "MemoryError" in problem.message or problem.reason == "COMPILER_CRASHED"


async def test_time_is_bounded() -> None:
    source = b"".join(b"def f%d(a, b=1): return [a + b for x in (1, 2, 3) if x]\n" % n for n in range(60_000))
    problem = await compiled(source, cpu_sec=1)
    assert isinstance(problem, Problem)
    assert (problem.reason, "SIGXCPU" in problem.message) == ("COMPILER_CRASHED", True)


async def test_a_sandbox_is_ready_from_the_start_and_again_after_each_session() -> None:
    prepared = compiler()
    async with kept_ready(prepared):
        pid = await spare_of(prepared)
        async with prepared.session() as session:
            assert isinstance(await session.compile("handler.py", b"x = 1\n"), Module)
            assert session._process is not None
            assert session._process.pid == pid
            async with prepared.session() as other:
                await other.compile("handler.py", b"x = 1\n")
                assert pid_of(other) != pid_of(session)
        last = await spare_of(prepared)
        assert last != pid
    await gone(last)


async def test_a_ready_sandbox_that_died_meanwhile_is_not_taken() -> None:
    prepared = compiler()
    async with kept_ready(prepared):
        spare = await spare_of(prepared)
        os.kill(step_usage.tree(spare)[-1], signal.SIGKILL)
        os.waitid(os.P_PID, spare, os.WEXITED | os.WNOWAIT)
        async with prepared.session() as session:
            assert isinstance(await session.compile("handler.py", b"x = 1\n"), Module)
    await gone(spare)


@asynccontextmanager
async def kept_ready(prepared: PythonCompiler) -> AsyncIterator[None]:
    task = asyncio.create_task(prepared.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def spare_of(prepared: PythonCompiler) -> int:
    async def ready() -> bool:
        return prepared._spare is not None

    await until(ready, "a sandbox is ready", 10)
    assert prepared._spare is not None
    return prepared._spare.pid


async def gone(pid: int) -> None:
    async def ended() -> bool:
        return not Path(f"/proc/{pid}").exists()

    await until(ended, "the sandbox ends", 10)


async def test_an_interpreter_that_is_not_there_is_the_platforms_fault(tmp_path: Path) -> None:
    async with compiler(tmp_path / "python3.11").session() as session:
        with pytest.raises(Unavailable, match="can't be started"):
            await session.compile("handler.py", b"")


async def test_what_the_interpreter_began_ends_with_it(tmp_path: Path) -> None:
    word = f"1{secrets.randbelow(10**9):09}"
    script = tmp_path / "python3.11"
    begin = f'case "$*" in *base_prefix*) ;; *) sleep {word} & esac'
    script.write_text(f'#!/bin/sh\n{begin}\nexec {python311()} "$@"\n')
    script.chmod(0o755)
    async with compiler(script).session() as session:
        await session.compile("handler.py", b"x = 1\n")
        assert processes_with(word)

    async def gone() -> bool:
        return not processes_with(word)

    await until(gone, "the background process ends", 10)


async def test_a_machine_without_an_interpreter_says_so_once() -> None:
    with pytest.raises(UserError, match=r"no Python 3\.11"):
        async with NoCompiler().session():
            pass
