"""Secret variables between a request and the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sless_registry.domain.drafts import SecretDraft
from sless_registry.domain.resources import Configuration, Secret
from sless_registry.errors import InvalidField
from sless_registry.ports import Sealer


@dataclass(frozen=True, slots=True)
class SecretWriter:
    """Makes what is stored of what a request says. A value that is stored already stays as it is, so that nothing changes."""

    sealer: Sealer
    function_uid: str
    stored: Mapping[str, Secret]

    def __call__(self, name: str, draft: SecretDraft) -> Secret:
        """See domain.validation.StoreSecret."""
        stored, context = self.stored.get(name), _context(self.function_uid, name)
        if draft.value is None:
            return _kept(name, draft, stored)
        if stored is not None and self.sealer.matches(stored, draft.value, context=context):
            return stored
        return self.sealer.seal(draft.value, context=context)


def revealed(sealer: Sealer, function_uid: str, configuration: Configuration) -> dict[str, str]:
    """The values of the secret variables in a configuration of the function."""
    return {
        name: sealer.open(secret, context=_context(function_uid, name))
        for name, secret in configuration.secret_env.items()
    }


def _kept(name: str, draft: SecretDraft, stored: Secret | None) -> Secret:
    field = f"secret_env.{name}"
    if draft.digest is None:
        raise InvalidField(f"{field} must have a value, or the sha256 of the stored one", field=field)
    if stored is None or stored.digest != draft.digest:
        raise InvalidField(
            f"{field} has no stored value with sha256 {draft.digest[:64]!r}: give the value", field=field
        )
    return stored


def _context(function_uid: str, name: str) -> str:
    return f"{function_uid}/{name}"
