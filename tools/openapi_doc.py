"""Writes docs/openapi.json from the gateway's routes and types."""

from __future__ import annotations

import json
from pathlib import Path

from sless_gateway.http_api.openapi import document
from sless_gateway.http_api.routes import ROUTES

SERVER = "http://127.0.0.1:9090"


def text() -> str:
    """The text of docs/openapi.json."""
    return json.dumps(document(ROUTES, server=SERVER), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path("docs/openapi.json").write_text(text())
