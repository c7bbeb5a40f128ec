"""The table of services against the services themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from sless_cli.embedded import issuer, layout, secrets
from sless_cli.embedded.pg_binaries import PgBinaries
from sless_cli.embedded.pg_user import PgUser
from sless_cli.embedded.postgres import SUPERUSER, EmbeddedPostgres
from sless_cli.embedded.programs import ServiceCode
from sless_cli.embedded.provision import OWNER, role_of
from sless_cli.embedded.services import (
    LAUNCHER,
    MIGRATIONS,
    POSTGRES,
    SERVICES,
    Service,
    Surroundings,
    compose,
    variables,
)
from sless_contracts.wire import SERVICES as NAMES

EVERY = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Surroundings:
    """Surroundings in which nothing runs."""
    folder = tmp_path_factory.mktemp("data")
    where = layout.Layout(data=folder, run=Path("/run/x"))
    roles = [SUPERUSER, OWNER, *(role_of(service.name) for service in SERVICES)]
    return Surroundings(
        layout=where,
        secrets=secrets.load_or_create(where.secrets, services=NAMES, roles=roles),
        issuer=issuer.load_or_create(where.issuer_key),
        postgres=EmbeddedPostgres(
            binaries=PgBinaries((Path("/pg"),), Path("/pg/bin")), folder=where.postgres, run=where.postgres_run,
            user=PgUser(1, separate=False), major=18,
        ),
        endpoint="http://127.0.0.1:9090",
        public_fd=7,
        runtimes=Path("/runtimes"),
        python311=Path("/usr/bin/python3.11"),
        environ={},
    )  # fmt: skip


def composed(service: Service, around: Surroundings) -> dict[str, str]:
    return compose(service, service.load(), around, names=NAMES, ready_fd=9, faults="")


def test_every_service_is_in_the_table() -> None:
    assert [service.name for service in SERVICES] == list(NAMES)


@EVERY
def test_what_is_composed_is_what_the_service_needs(service: Service, around: Surroundings) -> None:
    settings = service.load().settings.build(**composed(service, around))

    assert settings.listen == f"unix:{around.layout.service_socket(service.name)}"
    assert settings.ready_fd == 9


@pytest.mark.fault(43)
@EVERY
def test_nothing_is_composed_that_the_service_does_not_read(service: Service, around: Surroundings) -> None:
    assert set(composed(service, around)) <= variables(service.load().settings)


@EVERY
def test_only_services_with_migrations_have_a_database_role(service: Service) -> None:
    assert service.tables == (service.load().migrations is not None)
    assert service.tables == ("POSTGRES_DSN" in variables(service.load().settings))


@EVERY
def test_whom_a_service_calls_is_there_before_it(service: Service) -> None:
    known = {POSTGRES, MIGRATIONS, LAUNCHER, *NAMES[: NAMES.index(service.name)]}
    assert set(service.after) <= known
    assert set(service.peers) <= set(NAMES[: NAMES.index(service.name)])


def test_the_environment_changes_what_is_not_decided_here(around: Surroundings) -> None:
    from dataclasses import replace

    environ = {
        "SLESS_IDLE_SEC": "5",
        "SLESS_LAUNCHER_SOCKET": "/elsewhere",
        "EXTERNAL_URL": "https://x",
        "SLESS_LOG_LEVEL": "debug",
    }
    changed = replace(around, environ=environ)
    by_name = {service.name: composed(service, changed) for service in SERVICES}

    assert by_name["runtime-manager"]["SLESS_IDLE_SEC"] == "5"
    assert by_name["runtime-manager"]["SLESS_LAUNCHER_SOCKET"] == "/run/x/launcher.sock"
    assert by_name["gateway"]["EXTERNAL_URL"] == "https://x"
    assert {values["SLESS_LOG_LEVEL"] for values in by_name.values()} == {"debug"}
    assert "SLESS_IDLE_SEC" not in by_name["auth"]


def test_the_code_is_loaded_by_name() -> None:
    code = ServiceCode(SERVICES)
    code.load()

    assert code.names == list(NAMES)
    assert callable(code["registry"].serve)
