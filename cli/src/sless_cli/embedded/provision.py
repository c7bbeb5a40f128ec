"""Database, roles and schemas of the platform: one schema and one login role a service, all tables of one owner.

Every statement may run again. Passwords are handed over as SCRAM verifiers, so that no statement holds one.
"""

# ruff: noqa: S608 - all names in the statements are our own constants, and verifiers are base64

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import subprocess
from collections.abc import Mapping, Sequence

from sless_cli.embedded.postgres import PORT, SUPERUSER, EmbeddedPostgres
from sless_cli.errors import StartFailed

DATABASE = "sless"
OWNER = "sless_owner"
_ITERATIONS = 4096
_LIMIT_SEC = 30


def role_of(service: str) -> str:
    """Role and schema of a service: `runtime-manager` → `sless_runtime_manager`."""
    return "sless_" + service.replace("-", "_")


def provision(postgres: EmbeddedPostgres, *, services: Sequence[str], passwords: Mapping[str, str]) -> None:
    """Make what is missing and set the passwords (role → password, the superuser's too). Raises StartFailed with psql's words."""
    script = statements([role_of(service) for service in services], passwords)
    password_file = os.memfd_create("pgpass")
    os.write(password_file, f"*:*:*:*:{passwords[SUPERUSER]}\n".encode())
    os.fchmod(password_file, 0o600)
    command = [
        str(postgres.binaries.psql), "--no-psqlrc", "--quiet", "--tuples-only", "--set=ON_ERROR_STOP=1",
        f"--host={postgres.run}", f"--port={PORT}", f"--username={SUPERUSER}", "--no-password", "--dbname=postgres",
    ]  # fmt: skip
    environment = {"PGPASSFILE": f"/proc/self/fd/{password_file}", "PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    try:
        ended = subprocess.run(
            command, input=script, env=environment, pass_fds=(password_file,), capture_output=True, text=True,
            timeout=_LIMIT_SEC, check=False,
        )  # fmt: skip
    finally:
        os.close(password_file)
    if ended.returncode != 0:
        raise StartFailed(f"the database could not be provisioned: {ended.stderr.strip() or 'psql failed'}")


def statements(roles: Sequence[str], passwords: Mapping[str, str]) -> str:
    """The script for psql."""
    parts = [_login_role(role, passwords[role]) for role in (OWNER, *roles)]
    parts += [_DATABASE, *(_schema(role) for role in roles)]
    return "\n".join(parts)


def _login_role(role: str, password: str) -> str:
    return f"""
        SELECT 'CREATE ROLE {role}' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') \\gexec
        ALTER ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD '{scram_verifier(role, password)}';
        """


_DATABASE = f"""
    SELECT 'CREATE DATABASE {DATABASE} OWNER {OWNER}'
     WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = '{DATABASE}') \\gexec
    REVOKE ALL ON DATABASE postgres, template1, {DATABASE} FROM PUBLIC;
    \\connect {DATABASE}
    REVOKE ALL ON SCHEMA public FROM PUBLIC;
    """


def _schema(role: str) -> str:
    """The schema of a service. What the owner's migrations make in it is the service's to use, not to alter."""
    granted = "\n".join(
        f"ALTER DEFAULT PRIVILEGES FOR ROLE {OWNER} IN SCHEMA {role} GRANT ALL ON {kind} TO {role};"
        for kind in ("TABLES", "SEQUENCES", "FUNCTIONS", "TYPES")
    )
    return f"""
        GRANT CONNECT, TEMPORARY ON DATABASE {DATABASE} TO {role};
        CREATE SCHEMA IF NOT EXISTS {role} AUTHORIZATION {OWNER};
        GRANT ALL ON SCHEMA {role} TO {role};
        {granted}
        ALTER ROLE {role} IN DATABASE {DATABASE} SET search_path = {role};
        """


def scram_verifier(role: str, password: str) -> str:
    """A role's password as PostgreSQL stores it.

    The salt follows from role and password, so that the same password gives the same verifier at every start. Passwords here
    are random and plain ASCII: nothing to normalise.
    """
    return scram_verifier_of(password, hmac.digest(password.encode(), b"salt:" + role.encode(), "sha256")[:16])


def scram_verifier_of(password: str, salt: bytes) -> str:
    """SCRAM-SHA-256 of a password with this salt (RFC 5802, RFC 7677; the form is pg_authid.rolpassword's)."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored = hashlib.sha256(client_key).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    return f"SCRAM-SHA-256${_ITERATIONS}:{_base64(salt)}${_base64(stored)}:{_base64(server)}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
