"""Writes docs/limits.md from the limits and the catalogue."""

from __future__ import annotations

from pathlib import Path

from sless_contracts import catalog, limits

HEAD = """# Limits

Made by `make docs` from `sless_contracts.limits` and `sless_contracts.catalog`, the only places that have these
numbers. Operators change a limit with the setting beside it; the others are fixed.

| what | limit | setting |
| --- | --- | --- |
"""


def document() -> str:
    """The text of docs/limits.md."""
    rows = [
        f"| {limit.what} | {_amount(limit)} | {f'`{limit.setting}`' if limit.setting else '–'} |"
        for limit in limits.table().values()
    ]
    return HEAD + "\n".join(rows) + "\n\n" + _resources()


def _amount(limit: limits.Limit) -> str:
    if limit.unit == "bytes":
        for unit, size in (("MiB", limits.MIB), ("KiB", limits.KIB)):
            if limit.value % size == 0:
                return f"{limit.value // size:,} {unit}"
    return f"{limit.value:,} {limit.unit}"


def _resources() -> str:
    rows = [
        ("runtime", ", ".join(f"`{name}`" for name in catalog.RUNTIMES)),
        ("`memory_mb`", f"{_range(catalog.MEMORY_MB)}, default {catalog.DEFAULT_MEMORY_MB}"),
        ("`timeout_sec`", _range(catalog.TIMEOUT_SEC)),
        ("`replicas.min`, `replicas.max`", _range(catalog.REPLICAS)),
        ("`replicas.concurrency`", _range(catalog.CONCURRENCY)),
    ]
    for kind, defaults in catalog.DEFAULTS.items():
        timeout = "no limit" if defaults.timeout_sec is None else f"{defaults.timeout_sec} s"
        rows.append(
            (
                f"defaults of a {kind}",
                f"`timeout_sec` {timeout}, replicas {defaults.min_replicas} to {defaults.max_replicas}, "
                f"concurrency {defaults.concurrency}",
            )
        )
    body = "\n".join(f"| {what} | {value} |" for what, value in rows)
    return f"## Functions and services\n\n| field | values |\n| --- | --- |\n{body}\n"


def _range(bounds: catalog.Range) -> str:
    return f"{bounds.low:,} to {bounds.high:,}"


if __name__ == "__main__":
    Path("docs/limits.md").write_text(document())
