"""The command line as a person and a program use it."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.support.embedded import Platform, zipped

HELLO = "def handle(event):\n    return {'hello': event.get('name', 'world')}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a handler and things that must not be uploaded."""
    folder = tmp_path / "my-project"
    folder.mkdir()
    (folder / "handler.py").write_text(HELLO)
    (folder / ".gitignore").write_text("*.log\nsecret/\n")
    (folder / "noise.log").write_text("x")
    (folder / "secret").mkdir()
    (folder / "secret" / "key.txt").write_text("x")
    return folder


def test_a_folder_becomes_a_service_with_a_url(platform: Platform, project: Path) -> None:
    done = platform.sless("deploy", str(project), "--name", "from-folder", "--env", "A=1")

    url = next(word for line in done.stdout.splitlines() for word in line.split() if "/fn/" in word)
    assert httpx.post(url, json={"name": "cli"}).json() == {"hello": "cli"}
    listed = json.loads(platform.sless("service", "list", "--output", "json").stdout)
    assert "from-folder" in [service["name"] for service in listed]
    assert "from-folder" in platform.sless("service", "list").stdout
    got = json.loads(platform.sless("service", "get", "from-folder", "--output", "json").stdout)
    assert got["env_vars"] == {"A": "1"}

    changed = platform.sless("deploy", str(project), "--name", "from-folder", "--memory-mb", "256")
    assert changed.returncode == 0
    got = json.loads(platform.sless("service", "get", "from-folder", "--output", "json").stdout)
    assert (got["memory_mb"], got["env_vars"], got["active_version"]) == (256, {"A": "1"}, 1)

    platform.sless("service", "delete", "from-folder")
    assert httpx.get(url).status_code == 404


def test_a_zip_becomes_a_function_that_is_invoked(platform: Platform, tmp_path: Path) -> None:
    archive = tmp_path / "code.zip"
    archive.write_bytes(zipped({"handler.py": HELLO}))

    platform.sless("deploy", str(archive), "--name", "from-zip", "--private")

    invoked = platform.sless("invoke", "from-zip", "-d", '{"name": "me"}')
    assert json.loads(invoked.stdout) == {"hello": "me"}
    from_stdin = platform.sless("invoke", "from-zip", "-d", "-", "--verbose", input='{"name": "pipe"}')
    assert json.loads(from_stdin.stdout) == {"hello": "pipe"}
    assert "200" in from_stdin.stderr
    data = tmp_path / "event.json"
    data.write_text('{"name": "file"}')
    assert json.loads(platform.sless("invoke", "from-zip", "-d", f"@{data}").stdout) == {"hello": "file"}
    assert "from-zip" in platform.sless("function", "list").stdout
    assert platform.sless("service", "get", "from-zip", check=False).returncode != 0


def test_a_failing_call_and_a_failing_build_end_with_another_status(platform: Platform, tmp_path: Path) -> None:
    folder = tmp_path / "failing"
    folder.mkdir()
    (folder / "handler.py").write_text("def handle(event):\n    raise ValueError('no')\n")
    platform.sless("deploy", str(folder), "--private")

    called = platform.sless("invoke", "failing", check=False)
    assert called.returncode != 0
    assert json.loads(called.stdout)["code"] == "HANDLER_ERROR"

    (folder / "handler.py").write_text("def handle(event):\n    x = = 1\n")
    built = platform.sless("deploy", str(folder), "--private", check=False)
    assert built.returncode != 0
    assert "handler.py" in built.stdout + built.stderr
    assert "Traceback" not in built.stdout + built.stderr


def test_versions_are_made_activated_rolled_back_and_read(platform: Platform, tmp_path: Path) -> None:
    folder = tmp_path / "versioned"
    folder.mkdir()
    code = (
        "import os\n\ndef handle(event):\n    return {{'n': {n}, 'k': os.environ.get('K'), 's': os.environ.get('S')}}\n"
    )

    def answer() -> object:
        return json.loads(platform.sless("invoke", "versioned").stdout)

    (folder / "handler.py").write_text(code.format(n=1))
    platform.sless("deploy", str(folder), "--secret", "S", environ={"S": "hidden"})
    (folder / "handler.py").write_text(code.format(n=2))
    made = json.loads(platform.sless("deploy", str(folder), "--env", "K=v", "--output", "json").stdout)
    assert (made["version"], made["active_version"], made["generation"]) == (2, 2, 3)
    assert answer() == {"n": 2, "k": "v", "s": "hidden"}

    (folder / "handler.py").write_text(code.format(n=3))
    built = platform.sless("deploy", str(folder), "--no-activate")
    assert "version 3 is built" in built.stderr
    listed = json.loads(platform.sless("versions", "versioned", "--output", "json").stdout)
    assert [(each["version"], each["state"], each["active"]) for each in listed] == [
        (3, "Built", False),
        (2, "Built", True),
        (1, "Built", False),
    ]
    platform.sless("rollback", "versioned")
    assert answer() == {"n": 1, "k": "v", "s": "hidden"}
    platform.sless("activate", "versioned", "3")
    assert answer() == {"n": 3, "k": "v", "s": "hidden"}
    assert platform.sless("activate", "versioned", "9", check=False).returncode == 4

    platform.sless("source", "versioned", "-o", str(tmp_path / "copy"), "--version", "2")
    assert (tmp_path / "copy" / "handler.py").read_text() == code.format(n=2)
    assert code.format(n=3) in platform.sless("source", "versioned").stdout


@pytest.mark.fault(10)
def test_the_build_log_is_shown_as_it_comes_with_the_line_at_fault(platform: Platform, tmp_path: Path) -> None:
    folder = tmp_path / "at-fault"
    folder.mkdir()
    (folder / "handler.py").write_text("def handle(event):\n    return 1\n\nx = = 2\n")

    done = platform.sless("deploy", str(folder), check=False, environ={"FORCE_COLOR": "1", "TERM": "xterm"})

    assert done.returncode == 6
    log, _, end = done.stderr.rpartition("Error: ")
    assert "\x1b[1;31merror: handler.py" in log
    assert "x = = 2" in log
    assert end.startswith("version 1 of at-fault failed: ")
    assert "handler.py" in end
    message = json.loads(platform.sless("service", "get", "at-fault", "--output", "json").stdout)["message"]
    assert "handler.py" in message
    assert "x = = 2" in message


def test_a_service_that_is_switched_off_is_listed_as_off(platform: Platform, project: Path) -> None:
    platform.sless("deploy", str(project), "--name", "switched-off")
    platform.sless("deploy", str(project), "--name", "switched-off", "--min", "0", "--max", "0")

    rows = [line.split() for line in platform.sless("service", "list").stdout.splitlines()]
    assert next(row[1] for row in rows if row[0] == "switched-off") == "Off"


FAILURES = [
    (["deploy", "/nowhere"], "/nowhere"),
    (["service", "get", "nothing"], "nothing"),
    (["service", "delete", "nothing"], "nothing"),
    (["function", "get", "nothing"], "nothing"),
    (["invoke", "nothing"], "nothing"),
    (["invoke", "nothing", "-d", "@/nowhere"], "/nowhere"),
    (["frobnicate"], "frobnicate"),
]


@pytest.mark.parametrize(("arguments", "named"), FAILURES, ids=str)
def test_a_failure_is_one_sentence_and_no_traceback(platform: Platform, arguments: list[str], named: str) -> None:
    done = platform.sless(*arguments, check=False)

    assert done.returncode != 0
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_context_is_overridden_by_the_environment(platform: Platform) -> None:
    nowhere = platform.sless("service", "list", check=False, environ={"SLESS_ENDPOINT": "http://127.0.0.1:9"})
    stranger = platform.sless(
        "service", "list", "--output", "json", environ={"SLESS_API_TOKEN": platform.token("somebody")}
    )
    forged = platform.sless("service", "list", check=False, environ={"SLESS_API_TOKEN": "x.y.z"})

    assert nowhere.returncode != 0
    assert "127.0.0.1:9" in nowhere.stderr
    assert json.loads(stranger.stdout) == []
    assert forged.returncode != 0
    assert "token" in forged.stderr


def test_commands_without_a_folder_mean_the_platform_that_was_started_last(platform: Platform) -> None:
    assert platform.sless("token").stdout.count(".") == 2
    assert platform.data.name in platform.sless("status").stdout


def test_status_tells_programs_what_runs(platform: Platform) -> None:
    status = platform.status()

    assert {entry["name"] for entry in status["services"]} >= {
        "auth",
        "registry",
        "builder",
        "runtime-manager",
        "invoker",
        "gateway",
    }
    assert all(entry["pid"] and entry["rss_mb"] > 0 for entry in status["services"])
    assert set(status["isolation"]) >= {"level", "memory", "network"}
    assert status["build_sandbox"].keys() == {"level", "memory", "network", "reason"}
    assert status["build_sandbox"]["level"] in ("namespaces", "limits", "none")
    assert Path(status["data_dir"]) == platform.data.resolve()
    assert httpx.get(status["endpoint"] + "/health").json() == {"status": "ok"}


def test_secrets_stand_in_no_command_line_environment_or_log(platform: Platform) -> None:
    secrets = [
        value
        for value in _texts(json.loads(platform.layout.secrets.read_text()))
        if len(value) >= 16 and "PUBLIC" not in value
    ]
    assert secrets
    log = platform.log()
    for entry in platform.status()["services"]:
        process = Path(f"/proc/{entry['pid']}")
        seen = (process / "cmdline").read_text() + (process / "environ").read_text() + log
        assert not [secret for secret in secrets if secret in seen]
    assert platform.layout.secrets.stat().st_mode & 0o077 == 0


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return []
