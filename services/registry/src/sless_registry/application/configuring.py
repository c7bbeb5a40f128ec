"""What requests make of configurations, and answering once a change of one holds everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sless_registry.application.means import Means
from sless_registry.application.secrets import SecretWriter
from sless_registry.application.switching import Switching
from sless_registry.domain import lifecycle, validation
from sless_registry.domain.drafts import Draft, merged
from sless_registry.domain.resources import Configuration, Function, Kind


@dataclass(frozen=True, slots=True)
class Change:
    """The masked fields of a draft, to be taken over; an empty mask means every field."""

    draft: Draft
    mask: frozenset[str]


def new_configuration(means: Means, draft: Draft, kind: Kind, uid: str) -> Configuration:
    """The configuration of a function that is not there yet. Raises InvalidField."""
    return _validated(means, draft, kind, uid, None)


def changed_configuration(means: Means, function: Function, change: Change) -> Configuration:
    """The function's configuration after the change. Raises InvalidField."""
    wanted = merged(function.configuration, change.draft, change.mask)
    return _validated(means, wanted, function.kind, function.uid, function.configuration)


def needs_fence(before: Function, after: Function) -> bool:
    """Whether a change waits until it holds everywhere: it takes access away, or repeats one that may have done so."""
    return lifecycle.is_tight(after) if before == after else lifecycle.tightens(before, after)


async def confirmed(means: Means, switching: Switching, function: Function, within: timedelta) -> Function:
    """The function once its stored change holds everywhere, settled when it is switched off. Raises FencePending."""
    await means.fence(function.revision, within, done=f"{function.name!r} is changed")
    if not function.switching_off:
        return function
    settled = await switching.settle(function.uid, up_to=function.revision)
    return settled if settled is not None and settled.etag == function.etag else function


def _validated(means: Means, draft: Draft, kind: Kind, uid: str, current: Configuration | None) -> Configuration:
    stored = {} if current is None else current.secret_env
    writer = SecretWriter(means.sealer, uid, stored)
    return validation.configuration(draft, kind, stored=stored, store_secret=writer)
