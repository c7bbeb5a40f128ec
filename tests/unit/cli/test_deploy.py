"""`sless deploy` against a gateway that answers as the product's REST API does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sless_contracts.catalog import namespace_of

from tests.support.cli import RunCli
from tests.support.fake_gateway import Fake

ADA = namespace_of("ada")


def test_a_folder_becomes_a_service_and_its_url_is_printed(
    sless: RunCli, fake: Fake, hello: Path, endpoint: str
) -> None:
    ran = sless("deploy", str(hello))

    assert (ran.code, ran.out) == (0, f"{endpoint}/fn/{ADA}/hello\n")
    assert "building version 1" in ran.err
    created = json.loads(fake.sent("POST", "/services")[0])
    assert created == {"name": "hello", "runtime": "python3.11", "entrypoint": "handler.handle"}
    assert len(fake.uploads["hello"]) == 1


def test_private_makes_a_function(sless: RunCli, fake: Fake, hello: Path) -> None:
    ran = sless("deploy", str(hello), "--private")

    assert ran.code == 0
    assert ran.out.endswith("/functions/hello/invoke\n")
    assert fake.resources[ADA, "hello"]["kind"] == "function"


def test_flags_reach_the_new_service(sless: RunCli, fake: Fake, hello: Path) -> None:
    ran = sless(
        *("deploy", str(hello), "--name", "greet", "--runtime", "python3.11", "--entrypoint", "handler.other"),
        *(
            "--env",
            "A=1",
            "--env",
            "B=x=y",
            "--memory-mb",
            "256",
            "--timeout-sec",
            "9",
            "--min",
            "2",
            "--concurrency",
            "5",
        ),
    )

    assert ran.code == 0
    assert json.loads(fake.sent("POST", "/services")[0]) == {
        "name": "greet",
        "runtime": "python3.11",
        "entrypoint": "handler.other",
        "env_vars": {"A": "1", "B": "x=y"},
        "memory_mb": 256,
        "timeout_sec": 9,
        "replicas": {"min": 2, "max": 2, "concurrency": 5},
    }


def test_an_update_changes_what_is_given_and_keeps_the_rest(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello), "--env", "A=1", "--memory-mb", "256", "--max", "4")
    fake.resources[ADA, "hello"] |= {
        "labels": {"team": "x"},
        "secret_env": {"K": {"sha256": "ab"}},
        "access": "authenticated",
    }

    ran = sless("deploy", str(hello), "--env", "B=2", "--min", "2")

    assert ran.code == 0
    body = json.loads(fake.sent("PUT", "/services/hello")[0])
    assert body == {
        "display_name": "",
        "description": "",
        "runtime": "python3.11",
        "entrypoint": "handler.handle",
        "memory_mb": 256,
        "env_vars": {"A": "1", "B": "2"},
        "secret_env": {"K": {"sha256": "ab"}},
        "replicas": {"min": 2, "max": 4, "concurrency": 64},
        "labels": {"team": "x"},
        "access": "authenticated",
        "idempotent": False,
    }


def test_nothing_given_changes_no_configuration(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))

    assert sless("deploy", str(hello)).code == 0
    assert fake.sent("PUT", "/services/hello") == []


@pytest.mark.fault(29)
def test_a_change_by_somebody_else_is_not_overwritten(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))
    fake.conflicts = 2

    ran = sless("deploy", str(hello), "--memory-mb", "512")

    assert ran.code == 0
    assert len(fake.sent("PUT", "/services/hello")) == 3
    assert fake.resources[ADA, "hello"]["memory_mb"] == 512


def test_endless_conflicts_are_given_up_with_a_sentence(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))
    fake.conflicts = 100

    ran = sless("deploy", str(hello), "--memory-mb", "512")

    assert ran.code == 1
    assert "somebody else" in ran.err


def test_an_existing_name_keeps_its_kind(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))

    ran = sless("deploy", str(hello), "--private")

    assert ran.code == 2
    assert "hello is a service, and stays one" in ran.err
    assert fake.resources[ADA, "hello"]["kind"] == "service"


def test_sless_toml_gives_fields_and_flags_win(sless: RunCli, fake: Fake, hello: Path) -> None:
    (hello / "sless.toml").write_text(
        'name = "from-toml"\nkind = "function"\nmemory_mb = 512\nentrypoint = "handler.handle"\n'
        'replicas = {min = 1, max = 3, concurrency = 2}\n[env_vars]\nA = "1"\n'
    )

    ran = sless("deploy", str(hello), "--memory-mb", "64", "--env", "B=2", "--max", "5")

    assert ran.code == 0
    assert json.loads(fake.sent("POST", "/functions")[0]) == {
        "name": "from-toml",
        "memory_mb": 64,
        "entrypoint": "handler.handle",
        "runtime": "python3.11",
        "replicas": {"min": 1, "max": 5, "concurrency": 2},
        "env_vars": {"A": "1", "B": "2"},
    }


@pytest.mark.parametrize(
    ("text", "said"), [("memroy_mb = 1", "memroy_mb"), ("a = = 1", "no valid TOML"), ('kind = "job"', "'job'")]
)
def test_a_wrong_sless_toml_is_refused(text: str, said: str, sless: RunCli, hello: Path) -> None:
    (hello / "sless.toml").write_text(text)

    ran = sless("deploy", str(hello))

    assert ran.code == 2
    assert said in ran.err


@pytest.mark.fault(10)
def test_a_failed_build_ends_with_its_reason(sless: RunCli, fake: Fake, hello: Path) -> None:
    fake.fails = "handler.py line 3: invalid syntax"

    ran = sless("deploy", str(hello))

    assert ran.code == 6
    assert ran.out == ""
    assert "version 1 of hello failed: handler.py line 3: invalid syntax" in ran.err


def test_what_the_log_has_shown_is_not_said_again(sless: RunCli, fake: Fake, hello: Path) -> None:
    fake.fails = "building version 1\nerror: handler.py line 3: invalid syntax\n    def x(:"

    ran = sless("deploy", str(hello))

    assert ran.err.splitlines()[-1] == "Error: version 1 of hello failed: handler.py line 3: invalid syntax"
    assert ran.err.count("def x(:") == 1


def test_unchanged_code_is_said_to_be_so(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))

    ran = sless("deploy", str(hello))

    assert ran.code == 0
    assert ran.err == "the code is that of version 1, which is built\n"


def test_a_failed_update_says_what_serves_on(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))
    fake.fails = "no such module"
    (hello / "more.py").write_text("")

    ran = sless("deploy", str(hello))

    assert ran.code == 6
    assert "Version 1 serves on" in ran.err


def test_no_wait_returns_after_the_upload(sless: RunCli, fake: Fake, hello: Path) -> None:
    fake.fails = "would fail later"

    ran = sless("deploy", str(hello), "--no-wait")

    assert ran.code == 0
    assert ran.out.endswith("/hello\n")
    assert not [path for _, path, _ in fake.requests if path.endswith("build-log")]


def test_a_refused_field_is_said_as_the_platform_says_it(sless: RunCli, hello: Path) -> None:
    ran = sless("deploy", str(hello), "--memory-mb", "9999")

    assert ran.code == 1
    assert ran.err == "Error: memory_mb must be from 64 to 8192, not 9999\n"


@pytest.mark.parametrize(
    ("folder", "name"), [("My_Function", "my-function"), ("hello.v2", "hello-v2"), ("a" * 80, "a" * 63)]
)
def test_the_folder_gives_the_name(folder: str, name: str, sless: RunCli, fake: Fake, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "main.py").write_text("def handler(event): ...\n")

    assert sless("deploy", str(tmp_path / folder)).code == 0
    assert (ADA, name) in fake.resources


@pytest.mark.parametrize("arguments", [["--env", "NOVALUE"], ["--env", "=x"], ["--name", "Bad_Name"]])
def test_wrong_options_are_refused_before_anything_is_sent(
    arguments: list[str], sless: RunCli, fake: Fake, hello: Path
) -> None:
    ran = sless("deploy", str(hello), *arguments)

    assert ran.code == 2
    assert fake.requests == []


@pytest.mark.fault(44)
def test_a_deploy_survives_broken_connections(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))
    fake.drops = {"GET": 2, "PUT": 2}

    assert sless("deploy", str(hello), "--memory-mb", "99").code == 0
    assert fake.resources[ADA, "hello"]["memory_mb"] == 99
