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
