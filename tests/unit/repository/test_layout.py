"""The repository's shape: every service is in the lists that know all services."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from sless_cli.embedded.services import SERVICES as EMBEDDED
from sless_contracts.wire import SERVICES

ROOT = Path(__file__).parents[3]
LONGEST_MODULE = 400
"""Lines. Modules aim at 300; one that has grown past this has more than one job."""
FOLDERS = sorted(path.parent.name for path in (ROOT / "services").glob("*/pyproject.toml"))


def project() -> dict[str, Any]:
    """The top pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages() -> set[str]:
    """The services' packages."""
    return {"sless_" + folder.replace("-", "_") for folder in FOLDERS}


def test_every_service_is_known() -> None:
    assert sorted(SERVICES) == FOLDERS
    assert sorted(service.name for service in EMBEDDED) == FOLDERS


def test_every_service_has_its_layers_in_a_contract() -> None:
    contracts = project()["tool"]["importlinter"]["contracts"]
    layered = {
        container
        for contract in contracts
        if contract["type"] == "layers"
        for container in contract.get("containers", [])
    }
    independent = next(set(contract["modules"]) for contract in contracts if contract["type"] == "independence")
    pure = next(set(contract["source_modules"]) for contract in contracts if contract["type"] == "forbidden")

    assert layered == packages()
    assert independent == packages()
    assert pure >= {f"{package}.{module}" for package in packages() for module in ("domain", "application")}


def test_every_service_has_the_parts_that_its_kind_has() -> None:
    for folder in FOLDERS:
        source = ROOT / "services" / folder / "src" / ("sless_" + folder.replace("-", "_"))
        for part in ("__main__.py", "main.py", "settings.py", "errors.py"):
            assert (source / part).is_file(), f"{folder} lacks {part}"
        assert (source / "ports.py").is_file() or (source / "ports").is_dir(), f"{folder} lacks its ports"
        assert (ROOT / "services" / folder / "README.md").is_file(), f"{folder} lacks README.md"


def test_modules_stay_readable() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for part in ("libs/*/src", "services/*/src", "cli/src", "runtimes/python3.11")
        for top in ROOT.glob(part)
        for path in top.rglob("*.py")
        if "sless/" not in str(path.relative_to(top)) and (lines := len(path.read_text().splitlines())) > LONGEST_MODULE
    }

    assert long == {}
