"""What a measurement gives, and how it is shown."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `peer`: what it is measured beside, with its value; `goal`: what is to be reached ("" when nothing is)."""

    name: str
    value: float
    unit: str
    peer: str = ""
    peer_value: float | None = None
    goal: str = ""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The figure by its peer's."""
        return self.value / self.peer_value if self.peer_value else None


def middle(values: Sequence[float]) -> float:
    """The median."""
    return float(median(values))


def rendered(figures: Sequence[Figure]) -> str:
    """The table in Markdown, with the machine that it was made on."""
    lines = [
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine()}.",
        "",
        "| figure | measured | peer in the same run | peer | ratio | goal |",
        "| --- | ---: | --- | ---: | ---: | --- |",
    ]
    for figure in figures:
        peer = "" if figure.peer_value is None else f"{shown(figure.peer_value)} {figure.unit}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        name = f"{figure.name} ({figure.note})" if figure.note else figure.name
        lines.append(
            f"| {name} | {shown(figure.value)} {figure.unit} | {figure.peer or '–'} | {peer} | {ratio} | {figure.goal} |"
        )
    return "\n".join(lines)


def shown(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def machine() -> str:
    """Processor, cores, kernel and Python."""
    info = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return (
        f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores (shared, other work may run), "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )
