"""`sless versions`, `activate` and `rollback` against the fake gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sless_contracts.catalog import namespace_of

from tests.support.cli import RunCli
from tests.support.fake_gateway import Fake

ADA = namespace_of("ada")


@pytest.fixture
def three(sless: RunCli, fake: Fake, hello: Path) -> Fake:
    """The service hello with three versions, of which the third serves."""
    for number in range(3):
        (hello / "more.py").write_text(f"N = {number}\n")
        assert sless("deploy", str(hello)).code == 0
    fake.requests.clear()
    return fake


def serving(fake: Fake) -> object:
    return fake.resources[ADA, "hello"]["active_version"]


def test_versions_are_listed_newest_first(sless: RunCli, three: Fake) -> None:
    three.states["hello"] = {2: "Failed"}

    header, *rows = sless("versions", "hello").out.splitlines()

    assert header.split() == ["VERSION", "STATE", "SERVES", "SIZE", "CREATED", "BY", "MESSAGE"]
    assert [row.split()[:3] for row in rows] == [["3", "Built", "yes"], ["2", "Failed", "-"], ["1", "Built", "-"]]
    assert rows[1].endswith("handler.py line 1: no")
    listed = json.loads(sless("versions", "hello", "--output", "json").out)
    assert [version["version"] for version in listed] == [3, 2, 1]


def test_a_service_without_versions_says_so(sless: RunCli, fake: Fake, three: Fake) -> None:
    fake.uploads["hello"].clear()

    assert "has no versions yet" in sless("versions", "hello").err
    assert json.loads(sless("versions", "hello", "-o", "json").out) == []


def test_any_version_is_activated(sless: RunCli, three: Fake, endpoint: str) -> None:
    ran = sless("activate", "hello", "1")

    assert (ran.code, ran.out) == (0, f"{endpoint}/fn/{ADA}/hello\n")
    assert ran.err == "version 1 of hello serves\n"
    assert serving(three) == 1
    assert json.loads(sless("activate", "hello", "2", "--output", "json").out)["active_version"] == 2


def test_no_wait_returns_at_once(sless: RunCli, three: Fake) -> None:
    ran = sless("activate", "hello", "1", "--no-wait")

    assert ran.code == 0
    assert three.requests[-1][1].endswith("/versions/1/activate")


@pytest.mark.parametrize("command", [["versions", "no"], ["activate", "no", "1"], ["rollback", "no"]])
def test_what_is_not_there_is_said(command: list[str], sless: RunCli) -> None:
    ran = sless(*command)

    assert ran.code == 4
    assert "neither a service nor a function no" in ran.err


def test_a_version_that_is_not_there_is_said(sless: RunCli, three: Fake) -> None:
    ran = sless("activate", "hello", "9")

    assert ran.code == 4
    assert ran.err == "Error: there is no version 9 of hello: `sless versions hello` shows those there are\n"
    assert sless("activate", "hello", "0").code == 2


def test_a_version_that_does_not_start_says_what_serves_on(sless: RunCli, three: Fake) -> None:
    three.fails = "cannot be loaded"

    ran = sless("activate", "hello", "1")

    assert ran.code == 6
    assert "version 1 of hello failed: cannot be loaded\nVersion 3 serves on." in ran.err


def test_rollback_goes_to_the_built_version_before_the_one_that_serves(sless: RunCli, three: Fake) -> None:
    three.states["hello"] = {2: "Failed"}

    ran = sless("rollback", "hello")

    assert ran.code == 0
    assert ran.err == "version 1 of hello serves, no more 3\n"
    assert serving(three) == 1


def test_rollback_has_an_end(sless: RunCli, three: Fake) -> None:
    sless("activate", "hello", "1")

    ran = sless("rollback", "hello")

    assert ran.code == 1
    assert "version 1 of hello has no built version before it" in ran.err
    three.resources[ADA, "hello"]["active_version"] = None
    assert "no version of hello serves" in sless("rollback", "hello").err


@pytest.mark.fault(29)
def test_a_change_by_somebody_else_stops_an_activation(
    sless: RunCli, three: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sless_cli.resources.Found.if_match", {"If-Match": '"another"'})

    ran = sless("activate", "hello", "1")

    assert ran.code == 1
    assert "changed by somebody else" in ran.err
    assert serving(three) == 3


@pytest.mark.fault(44)
@pytest.mark.parametrize("after_effect", [True, False])
def test_an_activation_survives_a_broken_connection(after_effect: bool, sless: RunCli, three: Fake) -> None:
    three.drops, three.drop_after_effect = {"POST": 1}, after_effect
    generation = three.resources[ADA, "hello"]["generation"]

    ran = sless("activate", "hello", "2")

    assert ran.code == 0
    assert serving(three) == 2
    assert three.resources[ADA, "hello"]["generation"] == generation + 1
