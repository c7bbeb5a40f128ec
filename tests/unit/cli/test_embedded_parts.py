"""The small parts of the embedded platform."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import stat
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from sless_cli.commands.token import duration
from sless_cli.embedded import issuer, layout, lock, log, programs, provision, secrets
from sless_cli.embedded.pg_user import uid_base
from sless_cli.embedded.supervisor import readable
from sless_cli.errors import CliError, StartFailed, UsageFault
from sless_cli.installed import python311

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_the_longest_socket_of_any_run_folder_fits(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir(mode=0o700)

    for environ in (
        {},
        {"XDG_RUNTIME_DIR": str(tmp_path)},
        {"XDG_RUNTIME_DIR": str(long)},
        {"XDG_RUNTIME_DIR": "relative"},
    ):
        where = layout.layout(Path("/data/" + "d" * 200), environ)
        assert len(str(where.instances / "i-0123456789abcdef" / "instance.sock")) <= layout.SOCKET_PATH_LIMIT


def test_the_run_folder_lies_where_the_user_has_one_and_differs_by_data_folder() -> None:
    with tempfile.TemporaryDirectory() as runtime:
        one, other = (layout.layout(Path(f"/data/{name}"), {"XDG_RUNTIME_DIR": runtime}) for name in ("one", "other"))
    without = layout.layout(Path("/data/one"), {})

    assert one.run.parent == other.run.parent == Path(runtime) / "sless"
    assert one.run != other.run
    assert without.run == Path(f"/tmp/sless-{os.getuid()}") / one.run.name


def test_one_data_folder_has_one_run_folder_however_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert layout.layout(tmp_path / "link", {}) == layout.layout(tmp_path / "real", {})


def test_xdg_names_the_data_folder(tmp_path: Path) -> None:
    assert layout.default_data({"XDG_DATA_HOME": str(tmp_path)}) == tmp_path / "sless"
    assert layout.default_data({}).parts[-3:] == (".local", "share", "sless")


def test_folders_are_private_and_loose_run_folders_are_tightened(tmp_path: Path) -> None:
    where = layout.Layout(data=tmp_path / "data", run=tmp_path / "run" / "r")
    where.run.mkdir(parents=True)
    where.run.chmod(0o777)

    layout.prepare(where)

    for folder in (where.data, where.run, where.instances, where.postgres, where.objects, where.logs):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


def test_a_link_in_the_place_of_the_run_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StartFailed, match="is no folder"):
        layout.prepare(layout.Layout(data=tmp_path / "data", run=tmp_path / "run"))


def test_secrets_last_and_new_services_get_theirs(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"

    first = secrets.load_or_create(path, services=["a"], roles=["r"])
    second = secrets.load_or_create(path, services=["a", "b"], roles=["r", "s"])

    assert second.identity_keys["a"] == first.identity_keys["a"]
    assert second.database_passwords["r"] == first.database_passwords["r"]
    assert second.environment_key == first.environment_key
    assert set(second.identity_public_keys()) == {"a", "b"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first.database_passwords["r"] not in repr(first)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_broken_secrets_file_is_never_replaced(text: str, tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    path.write_text(text)

    with pytest.raises(StartFailed, match=r"secrets\.json"):
        secrets.load_or_create(path, services=["a"], roles=["r"])
    assert path.read_text() == text


def test_a_token_is_verified_by_the_published_keys(tmp_path: Path) -> None:
    path = tmp_path / "issuer.pem"
    token = issuer.load_or_create(path).token("ada", timedelta(hours=1), NOW)
    again = issuer.load(path)

    key = jwt.PyJWKSet.from_json(again.jwks())[again.key_id]
    claims = jwt.decode(token, key.key, algorithms=["EdDSA"], options={"verify_exp": False, "verify_iat": False})

    at = int(NOW.timestamp())
    assert claims == {"iss": "sless-embedded", "sub": "ada", "iat": at, "exp": at + 3600}
    assert jwt.get_unverified_header(token)["kid"] == again.key_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_issuer_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="sless up"):
        issuer.load(tmp_path / "issuer.pem")
    (tmp_path / "bad.pem").write_text("x")
    with pytest.raises(CliError, match="no Ed25519 key"):
        issuer.load(tmp_path / "bad.pem")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("7d", 604_800)])
def test_durations(text: str, seconds: int) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "1", "h", "0h", "-1h", "1.5h", "1w", "4000d", "١h", "999999999d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageFault, match="--ttl"):
        duration(text)


def test_a_lock_has_one_holder_and_tells_who(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert lock.holder_of(path) is None
    holder = lock.Holder(pid=os.getpid(), run="/run/x", endpoint="http://e")
    held = lock.DataLock.take(path, holder)

    assert lock.holder_of(path) == holder
    with pytest.raises(StartFailed, match=rf"pid {os.getpid()} at http://e"):
        lock.DataLock.take(path, holder)

    held.release()
    assert lock.holder_of(path) is None
    lock.DataLock.take(path, holder).release()


def test_a_log_keeps_so_many_files_and_json_lines_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_BYTES", 100)
    written = log.PlatformLog(tmp_path / "p.log")

    for number in range(40):
        written.line("svc", json.dumps({"n": number}) if number % 2 else f"line {number}")
    written.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.log", "p.log.1", "p.log.2", "p.log.3"]
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())
    assert (tmp_path / "p.log").read_text().endswith('svc | line 38\n{"n": 39}\n')


def test_a_full_disk_costs_lines_of_the_log_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    path.symlink_to("/dev/full")
    written = log.PlatformLog(path)

    written.line("svc", "lost")
    written.line("svc", "lost too")
    lost = written.lost
    path.unlink()
    written._reopen()
    written.line("svc", "there is room again")
    written.close()

    assert lost == 2
    assert path.read_text() == "supervisor | 2 lines could not be written and are lost\nsvc | there is room again\n"


def test_a_scram_verifier_is_what_the_rfc_makes_of_a_password() -> None:
    # The exchange of RFC 7677, section 3.
    nonce, salt = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", "W22ZaJ0SNY7soEsUEjb6gQ=="
    exchange = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s={salt},i=4096,c=biws,r={nonce}".encode()
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

    head, parameters, keys = provision.scram_verifier_of("pencil", base64.b64decode(salt)).split("$")
    stored, server = (base64.b64decode(key) for key in keys.split(":"))

    assert (head, parameters) == ("SCRAM-SHA-256", f"4096:{salt}")
    assert hmac.digest(server, exchange, "sha256") == signature
    client_key = bytes(a ^ b for a, b in zip(proof, hmac.digest(stored, exchange, "sha256"), strict=True))
    assert hashlib.sha256(client_key).digest() == stored


def test_a_password_gives_the_same_verifier_at_each_start_and_another_for_each_role() -> None:
    assert provision.scram_verifier("a", "x") == provision.scram_verifier("a", "x")
    assert provision.scram_verifier("a", "x") != provision.scram_verifier("b", "x")


def test_no_statement_holds_a_password() -> None:
    passwords = {"sless_owner": "owner-password", "sless_auth": "auth-password"}

    script = provision.statements(["sless_auth"], passwords)

    assert not [password for password in passwords.values() if password in script]


@pytest.mark.parametrize("text", ["x", "0", "1000", "-5", str(2**31)])
def test_a_bad_uid_base_is_refused(text: str) -> None:
    with pytest.raises(StartFailed, match="SLESS_UID_BASE"):
        uid_base({"SLESS_UID_BASE": text})


def test_the_uid_base_has_a_default() -> None:
    read: Callable[[dict[str, str]], int] = uid_base
    assert read({}) == 200_000
    assert read({"SLESS_UID_BASE": "300000"}) == 300_000


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain words", "plain words"),
        ('{"event": "gave up", "level": "error"}', "gave up"),
        ('{"event": "gave up", "exception": "Traceback\\n  File x\\nValueError: boom"}', "gave up: ValueError: boom"),
        ("[1]", "[1]"),
        ("{broken", "{broken"),
    ],
)
def test_the_last_lines_of_a_service_are_shown_as_people_read_them(line: str, shown: str) -> None:
    assert readable(line) == shown


def test_it_is_said_where_a_python_for_functions_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "sless_runtime_manager.adapters.local.find_python311"

    monkeypatch.setattr(module, lambda _environ: (None, ["/usr/bin/python3.11", "/opt/x/bin/python3.11"]))
    assert python311({"SLESS_PYTHON311": "/p"}) == (Path("/p"), ())
    found, (note,) = python311({})
    assert found is None
    assert "needs a Python 3.11" in note
    assert "/usr/bin/python3.11, /opt/x/bin/python3.11" in note

    monkeypatch.setattr(module, lambda _environ: (Path("/usr/bin/python3.11"), []))
    monkeypatch.setattr("sys.version_info", (3, 13, 1))
    found, (note,) = python311({})
    assert (found, "uses /usr/bin/python3.11" in note) == (Path("/usr/bin/python3.11"), True)


def test_the_launcher_is_told_what_is_demanded_of_it() -> None:
    assert programs.launcher_options({}) == ()
    demanded = {"SLESS_ISOLATION": "landlock", "SLESS_MEMORY_RESERVE_MB": "512"}
    assert programs.launcher_options(demanded) == ("--isolation", "landlock", "--memory-reserve-mb", "512")


@pytest.mark.parametrize(
    ("name", "value"),
    [("SLESS_ISOLATION", "docker"), ("SLESS_MEMORY_RESERVE_MB", "-1"), ("SLESS_MEMORY_RESERVE_MB", "1G")],
)
def test_a_demand_that_cannot_be_is_a_sentence(name: str, value: str) -> None:
    with pytest.raises(StartFailed, match=f"{name}='{value}' must be"):
        programs.launcher_options({name: value})
