"""`sless dev`: a folder run by the real runtime, without a platform."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.dev import Dev, processes_below, running_dev
from tests.support.embedded import SLESS, until

HANDLER = """
import asyncio, os, sys, time

def halves():
    yield "begun"
    raise RuntimeError("half-way")

def handle(event, context=None):
    path = event["_path"] if isinstance(event, dict) else "/"
    if path == "/raise":
        raise ValueError("no")
    if path == "/exit":
        os._exit(3)
    if path == "/slow":
        print("slow began")
        time.sleep(event["seconds"])
    if path == "/sleeper":
        import subprocess
        subprocess.Popen(["sleep", "1000"], start_new_session=False)
    if path == "/stream":
        return (f"line {number}\\n" for number in range(3))
    if path == "/half":
        return halves()
    if path == "/big":
        return {"length": len(event["text"])}
    if path == "/odd":
        return {"statusCode": 207, "headers": {"X-Odd": "yes", "Set-Cookie": "a=1"}, "body": "odd"}
    if path == "/unsendable":
        return {"statusCode": 200, "headers": {"X-Bad": "a\\nb"}, "body": ""}
    print("said on stdout")
    print("said on stderr", file=sys.stderr)
    return {"version": VERSION, "event": event, "k": os.environ.get("K"), "s": os.environ.get("S")}
"""


def code(version: object, handler: str = HANDLER) -> str:
    return f"VERSION = {version!r}\n{handler}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a handler."""
    folder = tmp_path / "my-function"
    folder.mkdir()
    (folder / "handler.py").write_text(code(1))
    return folder


@pytest.fixture
def dev(folder: Path, tmp_path: Path) -> Iterator[Dev]:
    """`sless dev` of that folder."""
    with running_dev(folder, "--env", "K=v", home=tmp_path) as running:
        running.saw("ready")
        yield running


def test_every_path_and_method_is_the_handlers(dev: Dev) -> None:
    answer = dev.call("/a%20b/c?x=1&x=2", "PUT", json={"n": 1}, headers={"X-Mine": "yes"})

    event = answer.json()["event"]
    assert (event["n"], event["_method"], event["_path"], event["_query"]) == (1, "PUT", "/a b/c", {"x": "2"})
    assert event["_headers"]["x-mine"] == "yes"
    assert answer.json()["k"] == "v"
    assert len(answer.headers["x-sless-invocation-id"]) == 26
    assert answer.headers["x-request-id"] == answer.headers["x-sless-invocation-id"]
    assert dev.call("/", "DELETE").json()["event"]["_method"] == "DELETE"
    assert dev.call("/", "POST", content=b"[1, 2]").json()["event"] == [1, 2]
    assert dev.call("/", "HEAD").status_code == 200


def test_answers_are_those_of_a_platform(dev: Dev) -> None:
    odd = dev.call("/odd")
    assert (odd.status_code, odd.headers["x-odd"], odd.headers["set-cookie"], odd.text) == (207, "yes", "a=1", "odd")
    assert dev.call("/stream").text == "line 0\nline 1\nline 2\n"
    assert dev.call("/big", "POST", json={"text": "x" * 3_000_000}).json() == {"length": 3_000_000}
    raised = dev.call("/raise")
    assert (raised.status_code, raised.json()["code"]) == (500, "HANDLER_ERROR")
    unsendable = dev.call("/unsendable")
    assert (unsendable.status_code, unsendable.json()["code"]) == (500, "HANDLER_ERROR")
    assert dev.call("/", "POST", content=b"x" * (32 * 1024 * 1024 + 1)).status_code == 413


def test_an_answer_that_ends_half_way_is_cut_and_told(dev: Dev) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        dev.call("/half")

    dev.saw("the answer ended half-way: ")
    dev.saw("RuntimeError: half-way")
    dev.saw("GET /half cut ")
    assert dev.call().status_code == 200


def test_a_client_that_goes_away_is_told(dev: Dev) -> None:
    with pytest.raises(httpx.ReadTimeout):
        dev.call("/slow", "POST", json={"seconds": 1}, timeout=0.2)

    dev.saw("POST /slow client gone ")


def test_what_happens_is_shown_as_it_comes(dev: Dev) -> None:
    dev.call("/path?q=1", "POST")

    assert dev.saw("ready: handler.handle")
    assert dev.saw("said on stdout", out=True)
    assert dev.saw("said on stderr")
    assert dev.saw("POST /path?q=1 200 ").rstrip().endswith(" ms")
    dev.call("/raise")
    dev.saw("ValueError: no")
    dev.saw("GET /raise 500 ")


def test_saved_code_answers(dev: Dev, folder: Path) -> None:
    for version in (2, 3, 4):
        (folder / "handler.py").write_text(code(version))
        assert dev.answers(f'"version": {version}').status_code == 200

    (folder / "helper.py").write_text("ANSWER = 'helped'\n")
    (folder / "handler.py").write_text("import helper\n\ndef handle(event):\n    return helper.ANSWER\n")
    dev.answers("helped")
    (folder / "helper.py").write_text("ANSWER = 'HELPED'\n")
    dev.answers("HELPED")
    dev.saw("reloaded: helper.py")


def test_a_call_that_runs_is_finished_by_the_old_code(dev: Dev, folder: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        slow = pool.submit(dev.call, "/slow", "POST", json={"seconds": 2})
        dev.saw("slow began", out=True)
        (folder / "handler.py").write_text(code(2))
        dev.answers('"version": 2')
        assert not slow.done()
        assert slow.result().json()["version"] == 1


def test_code_that_cannot_be_loaded_is_told_until_it_is_mended(dev: Dev, folder: Path) -> None:
    dev.answers('"version": 1')
    (folder / "handler.py").write_text("def handle(event):\n    return = 1\n")

    broken = dev.answers("cannot be loaded")

    assert broken.status_code == 500
    body = broken.json()
    assert (body["code"], body["error"].partition(":")[0]) == ("HANDLER_ERROR", "handler.py cannot be loaded")
    assert "return = 1" in body["detail"]
    dev.saw("return = 1")
    dev.saw("answered 500 until that is mended")
    (folder / "handler.py").write_text(code(2))
    dev.answers('"version": 2')


def test_a_module_that_never_ends_to_load_is_given_up_when_it_is_saved_again(dev: Dev, folder: Path) -> None:
    dev.answers('"version": 1')
    (folder / "handler.py").write_text("while True:\n    pass\n\ndef handle(event): ...\n")
    until(lambda: len(processes_below(folder)) > 2, "a second process")  # sless dev, the old code, the new code

    (folder / "handler.py").write_text(code(2))

    dev.answers('"version": 2')


def test_a_process_that_dies_is_replaced(dev: Dev) -> None:
    died = dev.call("/exit")

    assert (died.status_code, died.json()["code"]) == (502, "FUNCTION_CRASHED")
    dev.saw("the handler's process ended (exit code 3)")
    assert dev.call().json()["version"] == 1


def test_settings_beside_the_code_are_followed(dev: Dev, folder: Path) -> None:
    (folder / "sless.toml").write_text('[env_vars]\nS = "from toml"\n')
    dev.answers("from toml")
    (folder / "sless.toml").write_text("memroy_mb = 1\n")
    assert dev.answers("memroy_mb").status_code == 500
    (folder / "sless.toml").unlink()
    dev.answers('"version": 1')


def test_ignored_files_start_nothing(dev: Dev, folder: Path) -> None:
    (folder / ".gitignore").write_text("*.log\n")
    dev.saw("reloaded: .gitignore")
    (folder / "noise.log").write_text("x")
    (folder / "handler.py").write_text(code(2))

    dev.answers('"version": 2')

    assert dev.saw("reloaded", times=2).startswith("reloaded: handler.py,")


def test_a_handler_that_takes_too_long_is_told(folder: Path, tmp_path: Path) -> None:
    with running_dev(folder, "--timeout-sec", "1", home=tmp_path) as dev:
        slow = dev.call("/slow", "POST", json={"seconds": 5})

    assert (slow.status_code, slow.json()["code"]) == (504, "FUNCTION_TIMEOUT")


def test_an_interrupt_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    with running_dev(folder, home=tmp_path) as dev:
        dev.call("/sleeper")
        assert len(processes_below(tmp_path)) >= 3  # sless dev, the handler's process, its sleep
        (folder / "handler.py").write_text(code(2))
        dev.answers('"version": 2')

        assert dev.interrupt() == 0

        assert dev.saw("stopped") == dev.err[-1]
    assert processes_below(tmp_path) == []
    assert list(tmp_path.glob("sless-dev-*")) == []


def test_an_interrupt_does_not_wait_for_calls(folder: Path, tmp_path: Path) -> None:
    with running_dev(folder, home=tmp_path) as dev, concurrent.futures.ThreadPoolExecutor() as pool:
        slow = pool.submit(dev.call, "/slow", "POST", json={"seconds": 300})
        dev.saw("slow began", out=True)
        assert dev.interrupt() == 0
        with pytest.raises(httpx.HTTPError):
            slow.result()
    assert processes_below(tmp_path) == []


def test_a_killed_sless_dev_takes_its_process_along(folder: Path, tmp_path: Path) -> None:
    with running_dev(folder, home=tmp_path) as dev:
        dev.call()
        dev.process.send_signal(signal.SIGKILL)
        dev.process.wait()
        until(lambda: not processes_below(tmp_path), "the handler's process to end")


def test_it_ends_when_nobody_reads_what_it_tells(folder: Path, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [str(SLESS), "dev", str(folder), "--port", "0"]
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        process.stdout.close()
        assert httpx.get(url, timeout=60).status_code == 200
        assert process.wait(60) == 0
    assert processes_below(tmp_path) == []


def test_secrets_come_from_the_environment(folder: Path, tmp_path: Path) -> None:
    with running_dev(folder, "--secret", "S", home=tmp_path, S="hidden", K="not the handler's") as dev:
        answer = dev.call().json()

    assert (answer["s"], answer["k"]) == ("hidden", None)


def wheel(folder: Path, name: str, version: str) -> Path:
    """A package as an index would give it."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def test_dependencies_are_installed_once_for_each_content(folder: Path, tmp_path: Path) -> None:
    packages = {version: wheel(tmp_path, "pocket", version) for version in ("1.0", "2.0")}
    (folder / "handler.py").write_text("import pocket\n\ndef handle(event):\n    return pocket.VERSION\n")
    (folder / "requirements.txt").write_text(f"# nothing else\npocket @ {packages['1.0'].as_uri()}\n")
    with running_dev(folder, home=tmp_path) as dev:
        dev.answers("1.0")
        dev.saw("installing what requirements.txt asks for")
        (folder / "requirements.txt").write_text(f"pocket @ {packages['2.0'].as_uri()}\n")
        dev.answers("2.0")
        dev.saw("installing", times=2)
        (folder / "requirements.txt").write_text(f"# nothing else\npocket @ {packages['1.0'].as_uri()}\n")
        dev.answers("1.0")
        (folder / "requirements.txt").write_text(f"pocket @ {(tmp_path / 'nowhere.whl').as_uri()}\n")
        assert dev.answers("could not be installed").status_code == 500
    assert sum("installing" in line for line in dev.err) == 3
    with running_dev(folder, home=tmp_path) as dev:
        (folder / "requirements.txt").write_text(f"pocket @ {packages['2.0'].as_uri()}\n")
        dev.answers("2.0")
    kept = tmp_path / ".cache" / "sless" / "dependencies"
    assert len(list(kept.iterdir())) == 2


def test_what_makes_no_sense_is_said(folder: Path, tmp_path: Path) -> None:
    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "HOME": str(tmp_path)}
        return subprocess.run([SLESS, "dev", *arguments], env=environ, capture_output=True, text=True, check=False)

    nowhere = ran(str(tmp_path / "nowhere"))
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert "is no folder" in nowhere.stderr
    (tmp_path / "empty").mkdir()
    assert "--entrypoint" in ran(str(tmp_path / "empty")).stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = ran(str(folder), "--port", str(port))
    assert refused.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_answers_agree_with_the_platform_in_json(dev: Dev) -> None:
    assert json.loads(dev.call("/", "POST", content='{"ü": "日本"}'.encode()).text)["event"]["ü"] == "日本"
