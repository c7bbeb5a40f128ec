"""auth's settings: one issuer, of one kind, and every fault told at once."""

from __future__ import annotations

from typing import Any

import pytest
from sless_auth.settings import AuthSettings
from sless_platform.settings import SettingsError, load

COMMON = {
    "SLESS_LISTEN": "unix:/x",
    "SLESS_IDENTITY_KEY": "k",
    "SLESS_IDENTITY_PUBLIC_KEYS": "{}",
    "POSTGRES_DSN": "postgresql://auth@/sless",
}
JWKS = {**COMMON, "SLESS_ISSUER": "https://issuer", "SLESS_JWKS_URL": "https://issuer/keys"}
REMOTE = {**COMMON, "SLESS_ISSUER_KIND": "remote", "SLESS_REMOTE_URL": "https://cloud/me"}


def faults(environ: dict[str, str]) -> dict[str, str]:
    """Fault by variable."""
    with pytest.raises(SettingsError) as refusal:
        load(AuthSettings, environ)
    return {fault.replace("=", " ").split(" ")[0]: fault for fault in refusal.value.faults}


@pytest.mark.parametrize(
    "environ",
    [
        JWKS,
        {**COMMON, "SLESS_ISSUER": "i", "SLESS_JWKS": '{"keys": []}'},
        {**JWKS, "SLESS_ISSUER_KIND": "jwks", "SLESS_AUDIENCE": "a"},
        REMOTE,
        {**REMOTE, "SLESS_REMOTE_CACHE_SEC": "0", "SLESS_ADMIN_CLAIM": "groups", "SLESS_ADMIN_VALUE": "ops"},
    ],
)
def test_an_issuer_of_either_kind_will_do(environ: dict[str, str]) -> None:
    settings = load(AuthSettings, environ)

    assert settings.issuer_kind == environ.get("SLESS_ISSUER_KIND", "jwks")


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        (COMMON, {"SLESS_ISSUER", "SLESS_JWKS_URL"}),
        ({**COMMON, "SLESS_ISSUER_KIND": "remote"}, {"SLESS_REMOTE_URL"}),
        ({**JWKS, "SLESS_JWKS": '{"keys": []}'}, {"SLESS_JWKS_URL"}),
        ({**JWKS, "SLESS_JWKS_URL": "", "SLESS_JWKS": "keys"}, {"SLESS_JWKS"}),
        ({**JWKS, "SLESS_REMOTE_URL": "https://cloud"}, {"SLESS_REMOTE_URL"}),
        ({**REMOTE, "SLESS_JWKS_URL": "https://issuer/keys"}, {"SLESS_JWKS_URL"}),
        ({**REMOTE, "SLESS_ISSUER": "i", "SLESS_AUDIENCE": "a"}, {"SLESS_ISSUER", "SLESS_AUDIENCE"}),
        ({**REMOTE, "SLESS_REMOTE_URL": "cloud"}, {"SLESS_REMOTE_URL"}),
        ({**REMOTE, "SLESS_REMOTE_URL": "https://somebody@cloud"}, {"SLESS_REMOTE_URL"}),
        ({**JWKS, "SLESS_ISSUER_KIND": "magic"}, {"SLESS_ISSUER_KIND"}),
        ({**JWKS, "SLESS_ADMIN_CLAIM": "groups"}, {"SLESS_ADMIN_VALUE"}),
        ({**JWKS, "SLESS_ADMIN_VALUE": "ops"}, {"SLESS_ADMIN_VALUE"}),
        (
            {"SLESS_ISSUER_KIND": "remote", "SLESS_REMOTE_CACHE_SEC": "-1", "SLESS_ADMIN_CLAIM": "x"},
            {*COMMON, "SLESS_REMOTE_URL", "SLESS_REMOTE_CACHE_SEC", "SLESS_ADMIN_VALUE"},
        ),
    ],
)
def test_every_fault_is_told_at_once_and_names_its_variable(environ: dict[str, Any], named: set[str]) -> None:
    assert set(faults(environ)) == named
