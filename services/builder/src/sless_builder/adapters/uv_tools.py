"""What uv is told about indexes, proxies and certificates, from the variables that operators set for it or for pip."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from uv import find_uv_bin

from sless_builder.adapters.uv_installer import Tools

_PIPS: Final = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "UV_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "UV_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_TRUSTED_HOST": "UV_INSECURE_HOST",
    "PIP_CERT": "SSL_CERT_FILE",
}
_INDEXES: Final = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_INDEX_STRATEGY", "UV_EXCLUDE_NEWER")
_ADDRESS: Final = re.compile(r"[a-z0-9+.-]+://.*")
_SEPARATORS: Final = re.compile(r"[\s,]+")


def installer_tools(python: Path, variables: Mapping[str, str]) -> Tools:
    """The tools of this machine; `variables` as operators set them."""
    env = {name: value for name, value in variables.items() if name not in _PIPS}
    for name, value in variables.items():
        if name in _PIPS:
            env.setdefault(_PIPS[name], value)
    return Tools(Path(find_uv_bin()).resolve(), python.resolve(), env, _files_in(env))


def indexes_of(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that say where packages come from, without user names and passwords: those may change."""
    return tuple((name, " ".join(_bare(item) for item in _items(env[name]))) for name in _INDEXES if name in env)


def has_password(env: Mapping[str, str]) -> bool:
    """Whether a variable holds a name or a password, which the code that a source build runs could read."""
    addresses = [_ADDRESS.search(item) for value in env.values() for item in _items(value)]
    return any(found is not None and urlsplit(found[0]).username is not None for found in addresses)


def _files_in(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Files and folders of this machine that variables name: certificates, wheels."""
    named = [item for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_FIND_LINKS") for item in _items(env.get(name, ""))]
    paths = [Path(item.removeprefix("file://")) for item in named]
    return tuple(path for path in paths if path.is_absolute() and path.exists())


def _items(value: str) -> list[str]:
    return [item for item in _SEPARATORS.split(value) if item]


def _bare(item: str) -> str:
    parts = urlsplit(item)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
