"""The launcher's backend against a real launcher: what the memory backend cannot show."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sless_platform.errors import InvalidArgument
from sless_runtime_manager.adapters.local import LocalRuntimeBackend, find_python311
from sless_runtime_manager.errors import InstancesExhausted, LauncherUnavailable, StartFailed
from sless_runtime_manager.ports import InstanceEnded, InstanceListens, InstanceSpec

from tests.support.launcher import Conditions, Launcher, descendants, running_launcher

PATIENCE_SEC = 20
BASE, DEPENDENCIES, CODE = (f"sha256:{letter * 64}" for letter in "abc")
TELL = """
import json, os, sys, time
print(json.dumps({
    "argv": sys.argv, "orig": sys.orig_argv, "cwd": os.getcwd(), "env": dict(os.environ), "flags": [sys.flags.isolated, sys.flags.no_site],
    "code": open("code").read(), "runtime": open(os.path.dirname(sys.argv[0]) + "/runtime").read(), "version": sys.version_info[:2],
}), flush=True)
time.sleep(600)
"""


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    with running_launcher(Conditions("own", os.getuid())) as running:
        for digest, name in ((BASE, "runtime"), (DEPENDENCIES, "dependencies"), (CODE, "code")):
            folder = running.data / "layers" / digest.removeprefix("sha256:")
            folder.mkdir(parents=True)
            (folder / name).write_text(name)
            (folder / "main.py").write_text(TELL)
        yield running


def backend_of(launcher: Launcher, python311: Path | None = None) -> LocalRuntimeBackend:
    return LocalRuntimeBackend(
        launcher_socket=launcher.socket,
        run_dir=launcher.run,
        layers_dir=launcher.data / "layers",
        python311=python311 or find_python311(os.environ)[0],
    )


@pytest.fixture
async def backend(launcher: Launcher) -> AsyncIterator[LocalRuntimeBackend]:
    made = backend_of(launcher)
    yield made
    await made.close()


def spec(instance_id: str = "i-0000000000000001") -> InstanceSpec:
    return InstanceSpec(
        instance_id=instance_id,
        function_uid="fn-uid",
        namespace="sless-0123456789abcdef",
        uid_index=0,
        name="hello",
        version=3,
        generation=7,
        template="digest",
        runtime="python3.11",
        entrypoint="handler.handle",
        layers=(BASE, CODE),
        memory_mb=128,
        max_concurrency=16,
        env={"GREETING": "secret-hello", "HOME": "/tmp/mine"},
        grace=timedelta(seconds=5),
    )


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return as soon as `condition` holds; while the launcher can't be reached it does not."""
    async with asyncio.timeout(PATIENCE_SEC):
        while True:
            with suppress(LauncherUnavailable):
                if await condition():
                    return
            await asyncio.sleep(0.01)


async def first_end(backend: LocalRuntimeBackend) -> InstanceEnded:
    async with asyncio.timeout(PATIENCE_SEC), aclosing(backend.events()) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, InstanceEnded):
                return event
    raise AssertionError("the events ended")


async def told(backend: LocalRuntimeBackend) -> dict[str, object]:
    async with asyncio.timeout(PATIENCE_SEC), aclosing(backend.events()) as events:  # type: ignore[type-var]
        async for event in events:
            assert not isinstance(event, InstanceEnded), event
            if isinstance(event, InstanceListens):
                continue
            found: dict[str, object] = json.loads(event.text)
            return found
    raise AssertionError("the events ended")


@pytest.mark.parametrize("layers", [(BASE, CODE), (BASE, DEPENDENCIES, CODE)], ids=["two", "three"])
async def test_an_instance_runs_the_runtime_over_its_code(
    backend: LocalRuntimeBackend, layers: tuple[str, ...]
) -> None:
    sandboxed = (await backend.isolation()).level == "namespaces"
    await backend.start(replace(spec(), layers=layers))
    found = await told(backend)
    env = found["env"]
    assert isinstance(env, dict)
    assert found["runtime"] == "runtime"
    assert (found["code"], found["version"], found["flags"]) == ("code", [3, 11], [1, 1])
    assert ("SLESS_DEPENDENCIES_DIR" in env) == (len(layers) == 3)
    if sandboxed:
        assert found["argv"] == ["/opt/sless/runtime/main.py"]
        assert found["cwd"] == env["SLESS_CODE_DIR"] == "/srv/function"


async def test_that_it_listens_is_told_before_it_has_started(backend: LocalRuntimeBackend) -> None:
    async with asyncio.timeout(PATIENCE_SEC), aclosing(backend.events()) as events:  # type: ignore[type-var]
        await backend.isolation()
        starting = asyncio.create_task(backend.start(spec()))
        told = await anext(events)
        handle = await starting
    assert told == InstanceListens(handle.instance_id, handle.address)


async def test_the_environment_is_the_users_over_the_defaults_and_the_platforms(backend: LocalRuntimeBackend) -> None:
    await backend.start(spec())
    env = (await told(backend))["env"]
    assert isinstance(env, dict)
    platforms = {name: env.pop(name) for name in list(env) if name.startswith("SLESS_") and name != "SLESS_CODE_DIR"}
    assert platforms == {
        "SLESS_ENTRYPOINT": "handler.handle",
        "SLESS_FUNCTION": "hello",
        "SLESS_GRACE_MS": "5000",
        "SLESS_INSTANCE": "i-0000000000000001",
        "SLESS_LISTEN_FD": "3",
        "SLESS_MAX_CONCURRENCY": "16",
        "SLESS_MEMORY_MB": "128",
        "SLESS_NAMESPACE": "sless-0123456789abcdef",
        "SLESS_VERSION": "3",
    }
    del env["SLESS_CODE_DIR"]
    assert env.pop("PATH").endswith(":/usr/local/bin:/usr/bin:/bin")
    assert env == {"GREETING": "secret-hello", "HOME": "/tmp/mine", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}


async def test_no_file_holds_a_variable(launcher: Launcher, backend: LocalRuntimeBackend) -> None:
    await backend.start(spec())
    files = [path for path in launcher.run.rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["instance.json"]
    assert "secret-hello" not in files[0].read_text()


async def test_the_launchers_death_is_the_end_of_its_instances(
    launcher: Launcher, backend: LocalRuntimeBackend
) -> None:
    handle = await backend.start(spec())
    launcher.process.kill()
    with running_launcher(launcher.conditions, keep=launcher.base, socket_path=launcher.socket):
        ended = await first_end(backend)
        assert (ended.instance_id, ended.exit_code, ended.signal) == (handle.instance_id, None, None)
        assert ended.message == "the launcher ended, and this instance with it"
        assert list(await backend.list()) == []
        again = await backend.start(spec("i-0000000000000002"))
        assert [one.instance_id for one in await backend.list()] == [again.instance_id]


async def test_a_launcher_that_is_not_there_is_unavailable(launcher: Launcher) -> None:
    backend = LocalRuntimeBackend(
        launcher_socket=launcher.base / "none.sock",
        run_dir=launcher.run,
        layers_dir=launcher.data / "layers",
        python311=find_python311(os.environ)[0],
    )
    with pytest.raises(LauncherUnavailable, match=r"no launcher answers at .*none\.sock"):
        await backend.start(spec())
    await backend.close()


async def test_an_instance_that_is_nobodys_is_stopped(launcher: Launcher, backend: LocalRuntimeBackend) -> None:
    client = launcher.connect()
    pid = client.call("start", spec=launcher.spec("i-nobodys", "import time\ntime.sleep(600)"))["pid"]
    assert list(await backend.list()) == []

    async def stopped() -> bool:
        return pid not in descendants(launcher.process.pid)

    await eventually(stopped)


async def test_a_start_that_is_given_up_leaves_nothing(launcher: Launcher, backend: LocalRuntimeBackend) -> None:
    await backend.start(spec("i-0000000000000002"))
    await backend.stop("i-0000000000000002", grace=timedelta(0))
    folder = launcher.run / spec().instance_id

    async def asked_for() -> bool:
        return spec().instance_id in backend._starting

    async def nothing_left() -> bool:
        return not await backend.list() and not descendants(launcher.process.pid) and not folder.exists()

    launcher.process.send_signal(signal.SIGSTOP)
    starting = asyncio.create_task(backend.start(spec()))
    await eventually(asked_for)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    launcher.process.send_signal(signal.SIGCONT)
    await eventually(nothing_left)


async def test_a_lost_connection_affects_no_instance(launcher: Launcher, backend: LocalRuntimeBackend) -> None:
    handle = await backend.start(spec())
    running = [one["pid"] for one in launcher.connect().call("list")["instances"]]
    await backend.close()

    async def the_same_is_there() -> bool:
        return list(await backend.list()) == [handle]

    await eventually(the_same_is_there)
    assert [one["pid"] for one in launcher.connect().call("list")["instances"]] == running


async def test_a_layer_that_is_not_there_is_a_sentence(launcher: Launcher, backend: LocalRuntimeBackend) -> None:
    missing = "sha256:" + "d" * 64
    with pytest.raises(StartFailed, match=f"the layer {missing} is not there: no folder "):
        await backend.start(replace(spec(), layers=(BASE, missing)))
    with pytest.raises(InvalidArgument, match="two or three layers, not 1"):
        await backend.start(replace(spec(), layers=(CODE,)))
    with pytest.raises(InvalidArgument, match="sha256: and 64 hexadecimal digits"):
        await backend.start(replace(spec(), layers=(BASE, "sha256:../../x")))
    assert not (launcher.run / spec().instance_id).exists()


async def test_without_a_python_the_places_looked_at_are_named(launcher: Launcher) -> None:
    backend = backend_of(launcher, launcher.base / "no-python")
    with pytest.raises(StartFailed, match=r"runtime python3\.11 needs a Python 3\.11; looked at .*no-python"):
        await backend.start(spec())
    await backend.close()


async def test_a_python_is_looked_for_when_none_is_given(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = "sless_runtime_manager.adapters.local.backend.find_python311"
    found, _ = find_python311(os.environ)
    backend = LocalRuntimeBackend(
        launcher_socket=launcher.socket,
        run_dir=launcher.run,
        layers_dir=launcher.data / "layers",
        python311=None,
    )
    monkeypatch.setattr(searched, lambda environ: (None, ["/a/python3.11", "/b/python3.11"]))
    with pytest.raises(StartFailed, match=r"needs a Python 3\.11; looked at /a/python3\.11, /b/python3\.11"):
        await backend.start(spec())
    monkeypatch.setattr(searched, lambda environ: (found, []))
    await backend.start(spec())
    await backend.close()


async def test_exhaustion_is_told_from_failure(launcher: Launcher, backend: LocalRuntimeBackend) -> None:
    await backend.list()
    launcher.limit("NOFILE", 12)
    with pytest.raises(InstancesExhausted, match="Too many open files"):
        await backend.start(spec())
    launcher.limit("NOFILE", None)
    await backend.start(spec())


async def test_a_crash_loop_of_output_reaches_a_slow_reader_within_bounds(
    backend: LocalRuntimeBackend, launcher: Launcher
) -> None:
    layer = launcher.data / "layers" / BASE.removeprefix("sha256:")
    (layer / "main.py").write_text("import os\nfor _ in range(100):\n    os.write(1, b'z' * 65536)\n")
    await backend.start(spec())

    async def gone() -> bool:
        return not await backend.list()

    await eventually(gone)
    ended = await first_end(backend)
    assert ended.tail == "z" * 65536
