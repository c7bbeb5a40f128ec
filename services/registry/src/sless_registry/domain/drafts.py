"""What a request says about a function, before it is judged: defaults not yet filled in, nothing checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta

from sless_registry.domain.resources import Access, Configuration, Replicas
from sless_registry.errors import InvalidField


@dataclass(frozen=True, slots=True)
class SecretDraft:
    """A write-only variable as it is written: a new value, or the digest of the stored one, which is kept."""

    value: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A configuration as a request gives it. memory_mb 0, replicas None, timeout None, access None: the default."""

    display_name: str = ""
    description: str = ""
    runtime: str = ""
    entrypoint: str = ""
    memory_mb: int = 0
    timeout: timedelta | None = None
    env_vars: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, SecretDraft] = field(default_factory=dict)
    replicas: Replicas | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    access: Access | None = None
    idempotent: bool = False

    @classmethod
    def of(cls, configuration: Configuration) -> Draft:
        """The draft that gives this very configuration again."""
        kept = {name: SecretDraft(digest=secret.digest) for name, secret in configuration.secret_env.items()}
        plain = {name: getattr(configuration, name) for name in MUTABLE_FIELDS if name != "secret_env"}
        return cls(**plain, secret_env=kept)


MUTABLE_FIELDS = tuple(sorted(each.name for each in fields(Draft)))
"""The paths that an update mask may name."""


def merged(current: Configuration, draft: Draft, mask: frozenset[str]) -> Draft:
    """The current configuration with the masked fields of a draft; an empty mask, or "*", takes every field.

    Raises InvalidField for a path that is no field, or one that cannot be changed.
    """
    unknown = sorted(mask.difference(MUTABLE_FIELDS, {"*"}))
    if unknown:
        raise InvalidField(
            f"update_mask names {unknown[0]!r}, which can't be changed: use {', '.join(MUTABLE_FIELDS)}",
            field="update_mask",
        )
    if not mask or "*" in mask:
        return draft
    return replace(Draft.of(current), **{name: getattr(draft, name) for name in mask})
