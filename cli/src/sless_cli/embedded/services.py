"""The table of services: what each needs to be there first, and how its settings are composed.

Settings are handed to forked children in memory. What the supervisor decides (addresses, keys, passwords, folders) it decides;
any other variable that a service reads may be set in the environment of `sless up`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sless_cli.embedded.issuer import ISSUER, EmbeddedIssuer
from sless_cli.embedded.layout import Layout
from sless_cli.embedded.postgres import EmbeddedPostgres
from sless_cli.embedded.provision import DATABASE, role_of
from sless_cli.embedded.secrets import Secrets

POSTGRES = "postgres"
MIGRATIONS = "migrations"
LAUNCHER = "launcher"


class SettingsClass(Protocol):
    """A service's settings class, as sless_platform.settings makes them."""

    model_fields: Mapping[str, Any]

    def build(self, **values: object) -> Any:
        """Settings from values by variable name."""


@dataclass(frozen=True, slots=True)
class Code:
    """What is imported of a service: its settings, its main coroutine, and the folder of its migrations (None: it has none)."""

    settings: SettingsClass
    serve: Callable[[Any], Coroutine[Any, Any, None]]
    migrations: Path | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What settings are composed from.

    endpoint    URL of the public listener
    public_fd   descriptor of the public listener
    runtimes    folder with one folder a runtime
    python311   the interpreter for runtime python3.11; None when there is none
    environ     the environment of `sless up`
    """

    layout: Layout
    secrets: Secrets
    issuer: EmbeddedIssuer
    postgres: EmbeddedPostgres
    endpoint: str
    public_fd: int
    runtimes: Path
    python311: Path | None
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Service:
    """after   programs that must have been ready once before its first start
    peers   services that it calls
    load    imports its code
    own     settings of its own, beyond those that all services have; decided here
    defaults  settings of its own that the environment of `sless up` may change
    tables  whether it has a database role
    keeps   descriptors that it inherits
    """

    name: str
    after: tuple[str, ...]
    peers: tuple[str, ...]
    load: Callable[[], Code]
    own: Callable[[Surroundings], Mapping[str, str]] = lambda _around: {}
    defaults: Callable[[Surroundings], Mapping[str, str]] = lambda _around: {}
    tables: bool = False
    keeps: Callable[[Surroundings], Sequence[int]] = lambda _around: ()


def compose(
    service: Service, code: Code, around: Surroundings, *, names: Sequence[str], ready_fd: int, faults: str
) -> dict[str, str]:
    """The values for the service's settings class, by variable name. `names`: of all services."""
    decided = {
        "SLESS_LISTEN": f"unix:{around.layout.service_socket(service.name)}",
        "SLESS_IDENTITY_KEY": around.secrets.identity_keys[service.name],
        "SLESS_IDENTITY_PUBLIC_KEYS": json.dumps(around.secrets.identity_public_keys()),
        "SLESS_READY_FD": str(ready_fd),
        "SLESS_FAULTS": faults,
        **{target_of(peer): f"unix:{around.layout.service_socket(peer)}" for peer in service.peers if peer in names},
        **(_database(service, around) if service.tables else {}),
        **service.own(around),
    }
    given = {name: around.environ[name] for name in variables(code.settings) if name in around.environ}
    return {**service.defaults(around), **given, **decided}


def variables(settings: SettingsClass) -> set[str]:
    """The names of all variables that a settings class reads."""
    return {
        field.validation_alias for field in settings.model_fields.values() if isinstance(field.validation_alias, str)
    }


def target_of(service: str) -> str:
    """The variable that names a peer's address: `runtime-manager` → `SLESS_RUNTIME_MANAGER_TARGET`."""
    return f"SLESS_{service.upper().replace('-', '_')}_TARGET"


def _database(service: Service, around: Surroundings) -> dict[str, str]:
    role = role_of(service.name)
    return {"POSTGRES_DSN": around.postgres.dsn(role, around.secrets.database_passwords[role], DATABASE)}


def has_own_issuer(environ: Mapping[str, str]) -> bool:
    """Whether users' tokens come from elsewhere than `sless up`'s own issuer: there is one issuer, never two."""
    return any(environ.get(name) for name in ("SLESS_ISSUER_KIND", "SLESS_JWKS", "SLESS_JWKS_URL", "SLESS_REMOTE_URL"))


def _auth(around: Surroundings) -> dict[str, str]:
    if has_own_issuer(around.environ):
        return {}
    return {"SLESS_ISSUER": ISSUER, "SLESS_JWKS": around.issuer.jwks()}


def _registry(around: Surroundings) -> dict[str, str]:
    return {"SLESS_SECRET_ENV_KEY": around.secrets.environment_key}


_INSTALLERS = (
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX_STRATEGY"),
    *("UV_EXCLUDE_NEWER", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_INSECURE_HOST", "UV_SYSTEM_CERTS"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_TRUSTED_HOST", "PIP_CERT"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables of `sless up` that the installer of packages gets, and nobody else."""


def _installing(around: Surroundings) -> dict[str, str]:
    given = {name: around.environ[name] for name in _INSTALLERS if around.environ.get(name)}
    return {"SLESS_INSTALL_ENV": json.dumps(given)}


def _builder(around: Surroundings) -> dict[str, str]:
    where = around.layout
    return {
        "SLESS_OBJECTS_DIR": str(where.objects),
        "SLESS_BUILD_SANDBOX_FILE": str(where.build_sandbox),
        "SLESS_RUNTIMES_DIR": str(around.runtimes),
        **_code_places(around),
    }


def _runtime_manager(around: Surroundings) -> dict[str, str]:
    where = around.layout
    return {
        "SLESS_LAUNCHER_SOCKET": str(where.launcher_socket),
        "SLESS_RUN_DIR": str(where.instances),
        "SLESS_LOGS_DIR": str(where.logs),
        **_code_places(around),
    }


def _invoker(around: Surroundings) -> dict[str, str]:
    return {"SLESS_LOGS_DIR": str(around.layout.logs)}


def _gateway(around: Surroundings) -> dict[str, str]:
    return {"SLESS_PUBLIC_FD": str(around.public_fd)}


def _code_places(around: Surroundings) -> dict[str, str]:
    python = {} if around.python311 is None else {"SLESS_PYTHON311": str(around.python311)}
    return {"SLESS_LAYERS_DIR": str(around.layout.layers), **python}


def _package(package: str, settings_class: str) -> Callable[[], Code]:
    """The code of a service that is laid out as architecture.md says."""

    def load() -> Code:
        main = importlib.import_module(f"{package}.main")
        settings = getattr(importlib.import_module(f"{package}.settings"), settings_class)
        folder = Path(str(main.__file__)).parent / "migrations"
        return Code(settings=settings, serve=main.serve, migrations=folder if folder.is_dir() else None)

    return load


SERVICES: Sequence[Service] = (
    Service(
        name="auth", after=(MIGRATIONS,), peers=(), own=_auth, tables=True,
        load=_package("sless_auth", "AuthSettings"),
    ),
    Service(
        name="registry", after=(MIGRATIONS,), peers=("auth",), own=_registry, tables=True,
        load=_package("sless_registry", "RegistrySettings"),
    ),
    Service(
        name="builder", after=("registry",), peers=("auth", "registry"), own=_builder, tables=True, defaults=_installing,
        load=_package("sless_builder", "BuilderSettings"),
    ),
    Service(
        name="runtime-manager", after=("registry", LAUNCHER), peers=("registry",), own=_runtime_manager,
        load=_package("sless_runtime_manager", "RuntimeManagerSettings"),
    ),
    Service(
        name="invoker", after=("registry", "runtime-manager"), peers=("auth", "registry", "runtime-manager"), own=_invoker,
        load=_package("sless_invoker", "InvokerSettings"),
    ),
    Service(
        name="gateway", after=("auth", "registry", "builder", "invoker"),
        peers=("auth", "registry", "builder", "invoker"), own=_gateway,
        load=_package("sless_gateway", "GatewaySettings"), keeps=lambda around: (around.public_fd,),
        defaults=lambda around: {"EXTERNAL_URL": around.endpoint},
    ),
)  # fmt: skip
"""All services, in the order of their start."""
