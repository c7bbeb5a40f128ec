"""HELLO, and what callers of an instance that cannot serve are told."""

import socket
from pathlib import Path

import pytest

from runtimes.contract import client as protocol
from runtimes.contract.client import Client
from runtimes.contract.harness import listening_socket
from runtimes.contract.instances import Instances


def test_hello_introduces_the_instance(instances: Instances) -> None:
    with instances.client("echo") as client:
        assert client.greeting == {
            "protocol": 1,
            "runtime": instances.runtime.name,
            "function": "fixture",
            "version": 7,
            "instance": "i-0123456789abcdef",
            "max_concurrency": 16,
        }


def test_callers_that_connect_before_the_instance_exists_are_served(instances: Instances, tmp_path: Path) -> None:
    path = str(tmp_path / "early.sock")
    with listening_socket(path) as listener, Client(path, greet=False) as early:
        early.send(protocol.HELLO, payload=b'{"protocol": [1], "role": "gateway"}')
        instances.fresh("echo", listener=listener)
        assert early.wait(lambda frame: frame.kind == protocol.HELLO).json()["protocol"] == 1


def test_an_instance_finds_a_protocol_in_a_newer_callers_list(instances: Instances) -> None:
    with instances.client("echo", greet=False) as client:
        client.send(protocol.HELLO, payload=b'{"protocol": [1, 2], "role": "gateway", "new": true}')
        assert client.wait(lambda frame: frame.kind == protocol.HELLO).json()["protocol"] == 1


def test_the_listening_socket_is_not_the_handlers(instances: Instances) -> None:
    with instances.client("echo") as client:
        environment = client.call({}).json()["process"]["environment"]
        assert "SLESS_LISTEN_FD" not in environment
        assert environment["SLESS_FUNCTION"] == "fixture"


def refusals(instances: Instances, entrypoint: str, *, code: Path | None = None) -> tuple[str, str]:
    """Message and detail that two callers are told alike, and a non-zero exit after that."""
    instance = instances.fresh("", entrypoint=entrypoint, code=code)
    told = []
    for _ in range(2):
        with Client(instance.path, greet=False) as client:
            client.send(protocol.HELLO, payload=b'{"protocol": [1], "role": "runtime-manager"}')
            frames = client.until_closed()
            assert [frame.kind for frame in frames] == [protocol.GOAWAY]
            told.append(frames[0].json())
    assert told[0] == told[1]
    assert told[0]["reason"] == "LOAD_FAILED"
    assert instance.wait() != 0
    return told[0]["message"], told[0]["detail"]


@pytest.mark.fault(17)
def test_a_wrong_entrypoint_names_what_is_missing(instances: Instances) -> None:
    message, _ = refusals(instances, "echo.nothing_of_this_name")
    assert "echo.nothing_of_this_name" in message
    assert "nothing_of_this_name" in message


@pytest.mark.fault(17)
def test_an_entrypoint_whose_file_is_missing_names_the_file(instances: Instances) -> None:
    message, _ = refusals(instances, "no_such_file.handle")
    assert "no_such_file" in message


@pytest.mark.fault(17)
def test_an_entrypoint_without_a_function_is_refused(instances: Instances) -> None:
    message, _ = refusals(instances, "echo")
    assert "module.function" in message


@pytest.mark.fault(17)
def test_another_entrypoint_runs_another_function(instances: Instances) -> None:
    """The default handler is never run instead of the one that was named."""
    for entrypoint, answer in (("two.handle", "first"), ("two.other", "second")):
        with Client(instances.fresh("", entrypoint=entrypoint).path) as client:
            assert client.call({}).body == answer.encode()


def test_code_that_fails_while_it_loads_shows_the_end_of_its_traceback(instances: Instances) -> None:
    message, detail = refusals(instances, "raises.handle", code=instances.runtime.fixtures / "broken")
    assert "module level" in message
    assert "deeper" in detail
    assert "module level" in detail


def test_code_that_exits_while_it_loads_is_a_failure_to_load(instances: Instances) -> None:
    message, _ = refusals(instances, "exits.handle", code=instances.runtime.fixtures / "broken")
    assert "leaving at import" in message


def test_callers_that_came_before_a_failed_load_are_told(instances: Instances, tmp_path: Path) -> None:
    path = str(tmp_path / "early.sock")
    with listening_socket(path) as listener:
        callers = [Client(path, greet=False) for _ in range(5)]
        for caller in callers:
            caller.send(protocol.HELLO, payload=b'{"protocol": [1], "role": "gateway"}')
        instances.fresh("", entrypoint="raises.handle", code=instances.runtime.fixtures / "broken", listener=listener)
        for caller in callers:
            with caller:
                assert caller.until_closed()[0].json()["reason"] == "LOAD_FAILED"


def test_what_was_printed_before_a_failed_load_goes_to_the_launcher(instances: Instances) -> None:
    instance = instances.fresh("", entrypoint="imports.handle", code=instances.runtime.fixtures / "broken")
    with Client(instance.path, greet=False) as client:
        client.send(protocol.HELLO, payload=b'{"protocol": [1], "role": "gateway"}')
        assert "module_that_is_not_there" in client.until_closed()[0].json()["message"]
    assert instance.wait() != 0
    out, err = instance.output()
    assert out == b"before the import\n"
    assert b"module_that_is_not_there" in err


def test_a_tcp_socket_serves_as_well(instances: Instances) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        instances.fresh("echo", listener=listener)
        with socket.create_connection(listener.getsockname(), timeout=15) as connection:
            hello = b'{"protocol": [1], "role": "gateway"}'
            connection.sendall(protocol.frame(protocol.HELLO, 0, hello) + protocol.call_frame(1))
            found = b""
            while b'"event"' not in found:
                data = connection.recv(65536)
                assert data
                found += data
