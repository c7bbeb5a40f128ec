"""A PostgreSQL as an author's own would be: over TCP, encrypted connections only, with a certificate that can be checked.

The one of Debian's package `postgresql`, since the wheel's is built without TLS.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import pwd
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

START_LIMIT_SEC = 60
_DEBIAN = Path("/usr/lib/postgresql")
_ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class TlsPostgres:
    """A running server: a DSN that names no TLS settings, and the authority that its certificate is signed by."""

    dsn: str
    authority_pem: str
    folder: Path
    bin: Path

    def sql(self, statement: str) -> str:
        """Runs a statement over TLS, the server's certificate checked; gives what it printed."""
        (self.folder / "ca.pem").write_text(self.authority_pem)
        dsn = f"{self.dsn}?sslmode=verify-full&sslrootcert={self.folder / 'ca.pem'}"
        command = [str(self.bin / "psql"), "--no-psqlrc", "--tuples-only", "--no-align", dsn, f"--command={statement}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="session")
def tls_postgres() -> Iterator[TlsPostgres]:
    """One server for the session."""
    found = sorted(_DEBIAN.glob("*/bin/postgres"))
    if not found:
        pytest.skip("no PostgreSQL with TLS here: apt-get install postgresql")
    with _running(found[-1].parent) as server:
        yield server


@contextmanager
def _running(programs: Path) -> Iterator[TlsPostgres]:
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="sless-test-tls-pg-") as name:
        folder, password = Path(name), secrets.token_hex(12)
        authority = _certify(folder)
        (folder / "password").write_text(password)
        if user is not None:
            for path in (folder, *folder.iterdir()):
                os.chown(path, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        initdb = [
            str(programs / "initdb"),
            "--no-sync",
            "--username=notes",
            "--encoding=UTF8",
            "--locale=C",
            "--auth=scram-sha-256",
        ]
        _run([*initdb, f"--pwfile={folder / 'password'}", f"--pgdata={folder / 'data'}"], folder, user)
        (folder / "data" / "pg_hba.conf").write_text(f"hostssl all all {_ADDRESS}/32 scram-sha-256\n")
        port = _free_port()
        process = _serve(programs, folder, user, port)
        server = TlsPostgres(f"postgresql://notes:{password}@{_ADDRESS}:{port}/postgres", authority, folder, programs)
        try:
            _await_ready(process, folder, port)
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # its clients are cut off, not waited for
            process.wait(30)


def _serve(programs: Path, folder: Path, user: str | None, port: int) -> subprocess.Popen[bytes]:
    settings = {
        "listen_addresses": _ADDRESS, "port": str(port), "unix_socket_directories": "", "fsync": "off",
        "shared_buffers": "16MB", "ssl": "on", "ssl_cert_file": str(folder / "server.pem"),
        "ssl_key_file": str(folder / "server.key"),
    }  # fmt: skip
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (folder / "server.log").open("ab") as log:
        return subprocess.Popen(
            [str(programs / "postgres"), "-D", str(folder / "data"), *options], cwd=folder, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, **_as(user),
        )  # fmt: skip


def _await_ready(process: subprocess.Popen[bytes], folder: Path, port: int) -> None:
    end = time.monotonic() + START_LIMIT_SEC
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((_ADDRESS, port)) == 0 and "ready to accept" in (folder / "server.log").read_text():
                return
        time.sleep(0.02)
    raise AssertionError(f"PostgreSQL did not start: {(folder / 'server.log').read_text()[-2000:]}")


def _run(command: list[str], folder: Path, user: str | None) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=START_LIMIT_SEC, check=False, **_as(user)
    )
    assert done.returncode == 0, done.stderr


def _as(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _certify(folder: Path) -> str:
    """An authority and a certificate of its for the server; gives the authority's PEM."""
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name, server_name = _name("test authority"), _name(_ADDRESS)
    authority = _certificate(
        authority_name, authority_key.public_key(), authority_name, authority_key, x509.BasicConstraints(True, None)
    )
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(_ADDRESS))])
    server = _certificate(server_name, server_key.public_key(), authority_name, authority_key, address)
    (folder / "server.pem").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    key = folder / "server.key"
    key.touch(0o600)
    key.write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return authority.public_bytes(serialization.Encoding.PEM).decode()


def _certificate(
    subject: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(
        now + datetime.timedelta(days=1)
    )
    return builder.add_extension(extension, critical=False).sign(key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_ADDRESS, 0))
        return int(probe.getsockname()[1])
