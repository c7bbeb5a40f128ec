"""Which platform the commands talk to, and as whom: the context that `sless up` writes, or two environment variables."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sless_cli.embedded.files import write_private
from sless_cli.embedded.layout import Layout, layout
from sless_cli.errors import NotAllowed, UsageFault
from sless_cli.home import xdg_folder

ENDPOINT_VARIABLE = "SLESS_ENDPOINT"
TOKEN_VARIABLE = "SLESS_API_TOKEN"  # noqa: S105 - a variable's name


@dataclass(frozen=True, slots=True)
class Context:
    """endpoint  URL of the platform, without a path
    token     bearer token
    data_dir  data folder of the embedded platform that wrote it; "" for any other
    """

    endpoint: str
    token: str = field(repr=False)
    data_dir: str = ""


def config_file(environ: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/sless/config.toml`, as a rule below ~/.config."""
    return xdg_folder(environ, "XDG_CONFIG_HOME", ".config") / "sless" / "config.toml"


def save_context(context: Context, environ: Mapping[str, str]) -> None:
    """Write the context, readable by this user only. Raises OSError."""
    path = config_file(environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    values = {"endpoint": context.endpoint, "token": context.token, "data_dir": context.data_dir}
    # A JSON string is a TOML basic string (toml.io, "String").
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    write_private(path, "\n".join(["# Written by `sless up`; renewed at each start.", *lines, ""]))


def load_context(environ: Mapping[str, str]) -> Context:
    """The context: SLESS_ENDPOINT and SLESS_API_TOKEN first, then the file. Raises UsageFault, NotAllowed when there is none."""
    stored = _stored(config_file(environ))
    endpoint = environ.get(ENDPOINT_VARIABLE) or stored.get("endpoint", "")
    if not endpoint:
        raise UsageFault(
            f"no platform is known here: start one with `sless up`, or set {ENDPOINT_VARIABLE} and {TOKEN_VARIABLE}"
        )
    if not endpoint.startswith(("http://", "https://")):
        raise UsageFault(f"{ENDPOINT_VARIABLE}={endpoint!r} is no URL: it must begin with http:// or https://")
    # What people copy may be the address of the REST API, as `sless up` prints it.
    endpoint = endpoint.rstrip("/").removesuffix("/v1").rstrip("/")
    own = endpoint == stored.get("endpoint", "")
    # A token is for one endpoint: the stored one is never sent to another.
    token = environ.get(TOKEN_VARIABLE) or (stored.get("token", "") if own else "")
    if not token:
        raise NotAllowed(f"no token for {endpoint} is known here: set {TOKEN_VARIABLE}")
    return Context(endpoint=endpoint, token=token, data_dir=stored.get("data_dir", "") if own else "")


def layout_of_known(data: Path | None, environ: Mapping[str, str]) -> Layout:
    """The folders that `--data` names; without it those of the platform that was started last, else the default ones."""
    started_last = _stored(config_file(environ)).get("data_dir", "")
    return layout(data or (Path(started_last) if started_last else None), environ)


def _stored(path: Path) -> dict[str, str]:
    try:
        values = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageFault(
            f"{path} cannot be read ({error}): remove it and start the platform again with `sless up`"
        ) from error
    return {name: value for name, value in values.items() if isinstance(value, str)}
