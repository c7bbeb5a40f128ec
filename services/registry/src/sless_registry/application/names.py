"""Finding what a request names."""

from __future__ import annotations

from sless_registry.domain.record import Record
from sless_registry.domain.resources import Function, Kind
from sless_registry.errors import FunctionNotFound
from sless_registry.ports import Transaction


def found(function: Function | None, *, namespace: str, name: str, kind: Kind | None, revision: int) -> Function:
    """The function, if it is there and of the kind asked for.

    Raises FunctionNotFound, whose metadata says as of which revision (0: unknown).
    """
    if function is not None and kind in (None, function.kind):
        return function
    what = kind or "function or service"
    there = "" if function is None else f" ({name!r} is a {function.kind})"
    raise FunctionNotFound(
        f"there is no {what} {name!r} in namespace {namespace!r}{there}", metadata={"read_revision": str(revision)}
    )


async def locked(transaction: Transaction, *, namespace: str, name: str, kind: Kind | None) -> Record:
    """The live function's record, locked. Raises FunctionNotFound."""
    record = await transaction.lock(namespace, name)
    function = None if record is None else record.function
    found(function, namespace=namespace, name=name, kind=kind, revision=0)
    assert record is not None  # noqa: S101 - found() has raised
    return record
