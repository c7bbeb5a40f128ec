"""The other commands against the fake gateway."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from sless_contracts.catalog import namespace_of

from tests.support.cli import RunCli
from tests.support.fake_gateway import REFUSED_TOKEN, Fake

ADA = namespace_of("ada")


@pytest.fixture
def deployed(sless: RunCli, fake: Fake, hello: Path) -> Fake:
    """The fake gateway with the service hello in it."""
    assert sless("deploy", str(hello)).code == 0
    fake.requests.clear()
    fake.headers.clear()
    return fake


def test_list_is_a_table_or_json(sless: RunCli, deployed: Fake) -> None:
    table = sless("service", "list")
    as_json = sless("service", "list", "--output", "json")

    assert table.code == as_json.code == 0
    header, row = table.out.splitlines()
    assert header.split()[:3] == ["NAME", "PHASE", "RUNTIME"]
    assert row.split()[:4] == ["hello", "Ready", "python3.11", "1"]
    assert json.loads(as_json.out) == list(deployed.resources.values())


def test_a_service_that_is_switched_off_is_shown_as_off(sless: RunCli, deployed: Fake) -> None:
    deployed.resources[ADA, "hello"]["replicas"] = {"min": 0, "max": 0, "concurrency": 64}

    assert sless("service", "list").out.splitlines()[1].split()[1] == "Off"
    assert json.loads(sless("service", "list", "-o", "json").out)[0]["phase"] == "Ready"
    deployed.resources[ADA, "hello"]["phase"] = "Failed"
    assert sless("service", "list").out.splitlines()[1].split()[1] == "Failed"


def test_tables_are_whole_in_a_pipe(sless: RunCli, deployed: Fake) -> None:
    deployed.resources[ADA, "hello"]["env_vars"] = {f"VARIABLE_{number}": "x" * 50 for number in range(20)}

    out = sless("service", "get", "hello").out

    assert max(len(line) for line in out.splitlines()) > 1000
    assert "VARIABLE_19=" + "x" * 50 in out
    assert "…" not in out


def test_an_empty_list_says_how_to_fill_it(sless: RunCli) -> None:
    assert "sless deploy PATH" in sless("function", "list").err
    assert json.loads(sless("function", "list", "-o", "json").out) == []


def test_get_shows_all_fields(sless: RunCli, deployed: Fake) -> None:
    assert json.loads(sless("service", "get", "hello", "--output", "json").out) == deployed.resources[ADA, "hello"]
    table = sless("service", "get", "hello").out
    assert "replicas" in table
    assert "min=1, max=1, concurrency=64" in table


def test_delete_deletes(sless: RunCli, deployed: Fake) -> None:
    assert sless("service", "delete", "hello").code == 0
    assert deployed.resources == {}


@pytest.mark.fault(8)
@pytest.mark.parametrize("verb", ["get", "delete"])
def test_what_is_not_there_is_said(verb: str, sless: RunCli) -> None:
    ran = sless("service", verb, "nothing")

    assert ran.code == 4
    assert ran.err == "Error: there is no service nothing: `sless service list` shows those there are\n"


def test_a_delete_whose_answer_was_lost_has_deleted(sless: RunCli, deployed: Fake) -> None:
    deployed.drops, deployed.drop_after_effect = {"DELETE": 1}, True

    assert sless("service", "delete", "hello").code == 0
    assert deployed.resources == {}


def test_invoke_gives_the_body_alone_on_stdout(sless: RunCli, deployed: Fake) -> None:
    ran = sless("invoke", "hello", "-d", '{"a": "ü"}')

    assert (ran.code, ran.out) == (0, '{"a": "ü"}')
    assert ran.err.startswith("200 in ")


def test_invoke_reads_files_and_stdin(
    sless: RunCli, deployed: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "event.json").write_text('{"from": "file"}')
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"from": "stdin"}')))

    assert sless("invoke", "hello", "-d", f"@{tmp_path / 'event.json'}").out == '{"from": "file"}'
    assert sless("invoke", "hello", "-d", "-").out == '{"from": "stdin"}'
    assert sless("invoke", "hello", "-d", "@/nowhere").code == 2


@pytest.mark.parametrize(("status", "code"), [(200, 0), (204, 0), (301, 1), (404, 1), (500, 1), (504, 1)])
def test_invoke_ends_well_only_for_2xx(status: int, code: int, sless: RunCli, deployed: Fake) -> None:
    deployed.invoke_status = status

    ran = sless("invoke", "hello")

    assert ran.code == code
    assert ran.err.startswith(f"{status} in ")


def test_verbose_tells_headers_and_the_log(
    sless: RunCli, deployed: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    log = tmp_path / "data" / "logs" / "0a1b2c3d-0000-0000-0000-000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_text("hi\n")
    config = tmp_path / ".config" / "sless" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'endpoint = "{endpoint}"\ntoken = "ada"\ndata_dir = "{tmp_path / "data"}"\n')
    monkeypatch.delenv("SLESS_ENDPOINT")
    monkeypatch.delenv("SLESS_API_TOKEN")

    ran = sless("invoke", "hello", "--verbose")

    assert "x-sless-invocation-id: 01JTEST" in ran.err
    assert f"log: {log}" in ran.err


def test_invoke_is_never_sent_twice(sless: RunCli, deployed: Fake) -> None:
    deployed.drops = {"POST": 1}

    ran = sless("invoke", "hello")

    assert ran.code == 5
    assert len(deployed.sent("POST", "/invoke")) == 1


def test_invoke_of_nothing_is_said(sless: RunCli) -> None:
    ran = sless("invoke", "nothing")

    assert ran.code == 4
    assert "neither a service nor a function nothing" in ran.err


@pytest.mark.fault(44)
def test_a_refused_token_is_asked_about_once(sless: RunCli, deployed: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLESS_API_TOKEN", REFUSED_TOKEN)

    ran = sless("service", "list")

    assert ran.code == 3
    assert "SLESS_API_TOKEN" in ran.err
    assert len(deployed.requests) == 1


def test_debug_may_stand_anywhere_and_shows_the_exception(sless: RunCli) -> None:
    from sless_cli.errors import NotFound

    with pytest.raises(NotFound):
        sless("service", "get", "nothing", "--debug")


def test_wrong_usage_ends_with_2(sless: RunCli) -> None:
    for arguments in (["nonsense"], ["deploy"], ["service", "list", "--output", "xml"], ["up", "--port", "70000"]):
        ran = sless(*arguments)
        assert ran.code == 2
        assert "Usage:" in ran.err


def test_a_token_that_is_no_header_is_refused(sless: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLESS_API_TOKEN", "zeichen-ü")

    assert sless("service", "list").code == 5
