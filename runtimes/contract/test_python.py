"""What only a Python runtime has: kinds of callables, streams, forks."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import client as protocol
from runtimes.contract.client import Client
from runtimes.contract.harness import RuntimeUnderTest
from runtimes.contract.instances import Instances
from runtimes.contract.test_hello import refusals


@pytest.fixture(autouse=True)
def _python_alone(runtime: RuntimeUnderTest) -> None:
    if not runtime.name.startswith("python"):
        pytest.skip("for Python runtimes")


@pytest.mark.parametrize(
    ("entrypoint", "body"),
    [
        ("handler-http.handle", b"hyphen"),
        ("package.inner.module.handle", b"package.inner"),
        ("decorated.handle", b'{"name": "x"}'),
        ("callable_object.handle", b'{"function": "fixture"}'),
        ("callable_object.method", b'{"function": "fixture"}'),
        ("callable_object.partial", b"hello x"),
        ("callable_object.no_arguments", b"nothing"),
    ],
)
def test_kinds_of_entrypoints(instances: Instances, entrypoint: str, body: bytes) -> None:
    with Client(instances.fresh("", entrypoint=entrypoint).path) as client:
        assert client.call({"name": "x"}).body == body


def test_a_module_may_be_named_as_one_of_the_standard_library(instances: Instances) -> None:
    code = instances.runtime.fixtures / "shadow"
    with Client(instances.fresh("", entrypoint="select.handle", code=code).path) as client:
        assert client.call({}).body == b"the user's own select"


def test_an_entrypoint_that_is_no_function_is_refused(instances: Instances) -> None:
    message, _ = refusals(instances, "callable_object.not_callable")
    assert "no function but a dict" in message


def test_a_syntax_error_names_its_line(instances: Instances, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("def handle(event):\n    return (\n")
    message, detail = refusals(instances, "wrong.handle", code=tmp_path)
    assert "SyntaxError" in message
    assert "line 2" in message
    assert "return (" in detail


def test_a_failing_import_shows_the_users_line(instances: Instances) -> None:
    message, detail = refusals(instances, "imports.handle", code=instances.runtime.fixtures / "broken")
    assert "ModuleNotFoundError: No module named 'module_that_is_not_there'" in message
    assert "import module_that_is_not_there" in detail
    assert "sless_runtime" not in detail


def test_dependencies_and_their_path_files_are_found(instances: Instances, tmp_path: Path) -> None:
    dependencies, extra = tmp_path / "dependencies", tmp_path / "extra"
    dependencies.mkdir()
    extra.mkdir()
    (dependencies / "one.py").write_text("VALUE = 'one'")
    (extra / "two.py").write_text("VALUE = 'two'")
    (dependencies / "paths.pth").write_text(f"{extra}\n")
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("import one, two\ndef handle(event):\n    return [one.VALUE, two.VALUE]\n")
    instance = instances.fresh(
        "", entrypoint="main.handle", code=code, environment={"SLESS_DEPENDENCIES_DIR": str(dependencies)}
    )
    with Client(instance.path) as client:
        assert client.call({}).json() == ["one", "two"]


def test_nothing_of_the_platform_is_on_the_path(instances: Instances) -> None:
    with instances.client("echo") as client:
        process = client.call({}).json()["process"]
        assert process["path"][0] == str(instances.runtime.fixtures)
        assert not [entry for entry in process["path"][1:] if "runtimes" in entry]


def test_streams_are_what_libraries_expect(instances: Instances) -> None:
    with instances.client("print") as client:
        assert client.call({"do": "attributes"}).json() == {
            "isatty": False,
            "fileno": [1, 2],
            "encoding": "utf-8",
            "writable": True,
            "text": True,
            "reconfigure": None,
        }


def test_all_ways_of_printing(instances: Instances) -> None:
    with instances.client("print") as client:
        answer = client.call({"do": "both"})
        assert [(line["stream"], line["text"]) for line in answer.logs] == [
            ("stdout", "out"),
            ("stderr", "err"),
            ("stderr", "WARNING:root:logged"),
            ("stdout", "bytes é"),
            ("stdout", "a"),
            ("stdout", "b"),
            ("stdout", "no end"),
        ]


@pytest.mark.parametrize(("do", "line"), [("thread", "thread of x"), ("pool", "pool of x")])
def test_threads_print_for_the_call_that_gave_them_work(instances: Instances, do: str, line: str) -> None:
    with instances.client("print") as client:
        assert client.call({"do": do, "name": "x"}).lines() == [line]


def test_tasks_and_to_thread_print_for_their_call(instances: Instances) -> None:
    with instances.client("async_print") as client:
        assert client.call({"do": "task", "name": "x"}).lines() == ["task of x", "thread of x"]


def test_writes_to_the_descriptors_go_to_the_launcher(instances: Instances) -> None:
    instance = instances.fresh("print")
    with Client(instance.path) as client:
        assert client.call({"do": "descriptor"}).lines() == []
    assert instance.output() == (b"by descriptor\nby a program\n", b"error by descriptor\n")


def test_control_characters_and_surrogates_in_lines(instances: Instances) -> None:
    with instances.client("print") as client:
        lines = client.call({"do": "control"}).lines()
        assert "".join(lines) == "\x00\x1b[31m\\ud800é" + "\x01" * 70_000
        assert max(len(line.encode()) for line in lines) <= 64 * 1024


def test_closing_stdout_harms_nobody(instances: Instances) -> None:
    with instances.client("print") as client:
        assert client.call({"do": "closed"}).lines() == ["after close"]
        assert client.call({"do": "lines", "lines": ["next"]}).lines() == ["next"]


@pytest.mark.parametrize(("do", "code"), [("return", 0), ("raise", 1)])
def test_a_forked_child_never_answers_for_its_parent(instances: Instances, do: str, code: int) -> None:
    instance = instances.fresh("fork")
    with Client(instance.path) as client:
        assert client.call({"do": do}).json() == {"child": code}
        client.ping()
        assert [frame for frame in client.pending() if frame.kind != protocol.LOG] == []
    assert (b"in the child" in instance.output()[1]) is (do == "raise")


def test_a_pool_of_processes_works(instances: Instances) -> None:
    instance = instances.fresh("fork")
    with Client(instance.path) as client:
        assert client.call({"do": "pool"}).json() == [1, 4, 9]
    assert b"from the worker 3" in instance.output()[0]


def test_a_child_that_outlives_the_instance_holds_no_connection(instances: Instances) -> None:
    instance = instances.fresh("fork")
    with Client(instance.path) as client:
        pid = client.call({"do": "outlive"}).json()["pid"]
        try:
            instance.process.kill()
            client.until_closed()
        finally:
            kill(pid)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_sigterm_is_the_platforms_also_when_the_code_ignores_it(instances: Instances) -> None:
    instance = instances.fresh("ending")
    with Client(instance.path) as client:
        assert client.call({}).json() == {"isolated": 1}
    instance.terminate()
    assert instance.wait() == 0
    assert instance.output()[0] == b"atexit ran\n"


def test_an_interrupt_of_the_terminal_is_not_the_instances(instances: Instances) -> None:
    instance = instances.fresh("slow")
    with Client(instance.path) as client:
        instance.process.send_signal(signal.SIGINT)
        assert client.call({"do": "state"}).status == 200


def test_sigterm_is_seen_while_a_handler_holds_the_processor(instances: Instances) -> None:
    instance = instances.fresh("slow")
    with Client(instance.path) as client:
        call_id = client.begin(json.dumps({"do": "spin", "seconds": 1, "name": "a"}).encode())
        client.ping()
        instance.terminate()
        client.wait(lambda frame: frame.kind == protocol.DRAIN)
        assert client.answer(call_id).json() == {"name": "a"}


def test_descriptors_of_the_instance_are_not_inherited(instances: Instances) -> None:
    """A program that a handler starts sees its three streams and what it opens itself."""
    instance = instances.fresh("", entrypoint="programs.handle")
    with Client(instance.path) as client:
        seen: Any = client.call({}).json()
        assert set(seen) <= {"0", "1", "2", "3"}
