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
    assert fake.configs == [
        {},
        {"env_vars": {"A": "1", "B": "2"}, "replicas": {"min": 2, "max": 4, "concurrency": 64}},
    ]
    resource = fake.resources[ADA, "hello"]
    assert (resource["memory_mb"], resource["labels"], resource["access"]) == (256, {"team": "x"}, "authenticated")


def test_code_and_configuration_are_one_change_and_one_version(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))
    generation = fake.resources[ADA, "hello"]["generation"]
    (hello / "more.py").write_text("")

    assert sless("deploy", str(hello), "--memory-mb", "256").code == 0

    resource = fake.resources[ADA, "hello"]
    assert (resource["memory_mb"], resource["active_version"]) == (256, 2)
    assert resource["generation"] == generation + 1
    assert fake.sent("PUT", "/services/hello") == []
    assert fake.headers[-3]["If-Match"].endswith(f'-{generation}"')


def test_configuration_alone_makes_no_version(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))

    ran = sless("deploy", str(hello), "--memory-mb", "256")

    assert ran.code == 0
    assert len(fake.uploads["hello"]) == 1
    assert "the code is that of version 1" in ran.err


def test_nothing_given_changes_no_configuration(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))

    assert sless("deploy", str(hello)).code == 0
    assert fake.configs == [{}, {}]
    assert fake.resources[ADA, "hello"]["generation"] == 2


@pytest.mark.fault(29)
def test_a_change_by_somebody_else_is_not_overwritten(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))
    fake.conflicts = 2

    ran = sless("deploy", str(hello), "--memory-mb", "512")

    assert ran.code == 0
    assert fake.configs[1:] == [{"memory_mb": 512}] * 3
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
    assert ran.err.endswith("\nthe code is that of version 1, which is built\n")


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
    assert ran.err.endswith("\nError: memory_mb must be from 64 to 8192, not 9999\n")


@pytest.mark.parametrize(
    ("folder", "name"), [("My_Function", "my-function"), ("hello.v2", "hello-v2"), ("a" * 80, "a" * 63)]
)
def test_the_folder_gives_the_name_and_is_remembered(
    folder: str, name: str, sless: RunCli, fake: Fake, tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "main.py").write_text("def handler(event): ...\n")

    ran = sless("deploy", str(tmp_path / folder))

    assert ran.code == 0
    assert f"name: {name} (from '{folder}')" in ran.err
    assert fake.resources[ADA, name]["labels"] == {"sless/folder": folder}
    (tmp_path / folder / "sless.toml").write_text('labels = {team = "x"}\n')
    assert sless("deploy", str(tmp_path / folder)).code == 0
    assert fake.resources[ADA, name]["labels"] == {"sless/folder": folder, "team": "x"}


@pytest.mark.parametrize(("first", "second"), [("My_Func", "my.func"), ("my-func", "My Func"), ("My Func", "my-func")])
def test_two_folders_that_give_one_name_do_not_overwrite_each_other(
    first: str, second: str, sless: RunCli, fake: Fake, tmp_path: Path
) -> None:
    for folder in (first, second):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "main.py").write_text(f"def handler(event): return {folder!r}\n")
    sless("deploy", str(tmp_path / first))

    ran = sless("deploy", str(tmp_path / second))

    assert ran.code == 2
    assert f"made from {second!r}, belongs to what was deployed from {first!r}" in ran.err
    assert len(fake.uploads["my-func"]) == 1
    assert sless("deploy", str(tmp_path / second), "--name", "my-func").code == 0
    assert sless("deploy", str(tmp_path / second), "--name", "other").code == 0


def test_a_folder_whose_name_gives_none_is_asked_about(sless: RunCli, tmp_path: Path) -> None:
    (tmp_path / "名前").mkdir()
    (tmp_path / "名前" / "main.py").write_text("def handler(event): ...\n")

    ran = sless("deploy", str(tmp_path / "名前"))

    assert ran.code == 2
    assert "no name can be made of '名前': give one with --name" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--env", "NOVALUE"],
        ["--env", "=x"],
        ["--name", "Bad_Name"],
        ["--secret", "NO_SUCH"],
        ["--secret", "K=@/nowhere"],
    ],
)
def test_wrong_options_are_refused_before_anything_is_sent(
    arguments: list[str], sless: RunCli, fake: Fake, hello: Path
) -> None:
    ran = sless("deploy", str(hello), *arguments)

    assert ran.code == 2
    assert fake.requests == []


@pytest.mark.fault(44)
def test_a_deploy_survives_broken_connections(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))
    fake.drops = {"GET": 2, "POST": 2}

    assert sless("deploy", str(hello), "--memory-mb", "99").code == 0
    assert fake.resources[ADA, "hello"]["memory_mb"] == 99


@pytest.mark.fault(44)
def test_a_create_and_an_upload_whose_answers_are_lost_have_been_made(sless: RunCli, fake: Fake, hello: Path) -> None:
    fake.drops, fake.drop_after_effect = {"POST": 1}, True
    assert sless("deploy", str(hello), "--memory-mb", "99").code == 0

    (hello / "more.py").write_text("")
    fake.drops = {"POST": 1}
    assert sless("deploy", str(hello), "--memory-mb", "100").code == 0

    assert fake.resources[ADA, "hello"]["memory_mb"] == 100
    assert len(fake.uploads["hello"]) == 2


@pytest.mark.fault(44)
@pytest.mark.parametrize("cuts", [1, 2])
def test_a_build_log_that_breaks_off_is_read_on(cuts: int, sless: RunCli, fake: Fake, hello: Path) -> None:
    fake.log_cuts = cuts

    ran = sless("deploy", str(hello))

    assert ran.code == 0
    assert ran.err.splitlines()[1:] == ["building version 1", "built"]


def test_a_build_log_that_stays_broken_is_no_failure(sless: RunCli, fake: Fake, hello: Path) -> None:
    fake.log_cuts = 100

    ran = sless("deploy", str(hello))

    assert ran.code == 0
    assert "the build log broke off" in ran.err


@pytest.mark.fault(10)
def test_the_line_at_fault_stands_out_on_a_terminal(
    sless: RunCli, fake: Fake, hello: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    fake.fails = "error: handler.py line 3: invalid syntax\n    def x(:"

    ran = sless("deploy", str(hello))

    assert ran.code == 6
    assert "\x1b[1;31merror: handler.py line 3: invalid syntax" in ran.err
    assert "\x1b[1;31m    def x(:" in ran.err
    assert "\x1b[1;31mbuilding" not in ran.err


def test_a_version_may_be_built_without_serving(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))
    (hello / "more.py").write_text("")

    ran = sless("deploy", str(hello), "--no-activate")

    assert ran.code == 0
    assert "version 2 is built: `sless activate hello 2` lets it serve" in ran.err
    assert fake.resources[ADA, "hello"]["active_version"] == 1
    assert len(fake.uploads["hello"]) == 2


def test_a_version_that_is_not_to_serve_and_fails_is_told(sless: RunCli, fake: Fake, hello: Path) -> None:
    sless("deploy", str(hello))
    (hello / "more.py").write_text("")
    fake.fails = "error: no"

    ran = sless("deploy", str(hello), "--no-activate")

    assert ran.code == 6
    assert ran.err.endswith("Error: version 2 of hello was not built: no\n")
    assert "error: no\n" in ran.err


def test_deploy_tells_programs_what_it_made(sless: RunCli, fake: Fake, hello: Path) -> None:
    made = json.loads(sless("deploy", str(hello), "--output", "json").out)

    assert made == {**fake.resources[ADA, "hello"], "version": 1}


@pytest.mark.fault(38)
def test_it_is_said_where_a_deployment_goes(sless: RunCli, hello: Path, endpoint: str) -> None:
    assert sless("deploy", str(hello)).err.splitlines()[0] == f"deploying hello to {endpoint}"


def test_secrets_need_not_stand_on_the_command_line(
    sless: RunCli, fake: Fake, hello: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "from the environment")
    (tmp_path / "key.txt").write_text("from = a file\n")

    ran = sless("deploy", str(hello), "--secret", "DB_PASSWORD", "--secret", f"KEY=@{tmp_path / 'key.txt'}")

    assert ran.code == 0
    assert fake.resources[ADA, "hello"]["secret_env"] == {"DB_PASSWORD": "from the environment", "KEY": "from = a file"}
    assert "from the environment" not in ran.out + ran.err


def test_a_new_secret_keeps_the_others(sless: RunCli, fake: Fake, hello: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sless("deploy", str(hello))
    fake.resources[ADA, "hello"]["secret_env"] = {"K": {"sha256": "ab"}}

    ran = sless("deploy", str(hello), "--secret", "NEW=value")

    assert fake.configs[-1] == {"secret_env": {"K": {"sha256": "ab"}, "NEW": "value"}}
    assert "the value of NEW stands on a command line" in ran.err


def test_a_secret_is_asked_for_at_a_terminal(
    sless: RunCli, fake: Fake, hello: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TYPED", raising=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.prompt", lambda *_text, **options: "typed" if options["hide_input"] else "")

    assert sless("deploy", str(hello), "--secret", "TYPED").code == 0
    assert fake.resources[ADA, "hello"]["secret_env"] == {"TYPED": "typed"}


def test_access_is_a_flag(sless: RunCli, fake: Fake, hello: Path) -> None:
    assert sless("deploy", str(hello), "--access", "authenticated").code == 0
    assert fake.resources[ADA, "hello"]["access"] == "authenticated"
    assert sless("deploy", str(hello), "--access", "nobody").code == 2
