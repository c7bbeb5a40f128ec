"""Reads the recorded vectors beside this module; README.md says what each file holds."""

import base64
import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parent / "vectors"


def load(name: str) -> Any:
    """The content of `vectors/{name}.json`."""
    return json.loads((_FOLDER / f"{name}.json").read_text("utf-8"))


def raw(pieces: list[Any]) -> bytes:
    """Recorded bytes: pieces in hexadecimal, and `{"repeat", "times"}` for filling."""
    return b"".join(
        bytes.fromhex(piece) if isinstance(piece, str) else bytes.fromhex(piece["repeat"]) * piece["times"]
        for piece in pieces
    )


def body(vector: dict[str, Any]) -> bytes:
    """A vector's body: text in `body` or bytes in `body_base64`."""
    if "body_base64" in vector:
        return base64.b64decode(vector["body_base64"])
    return str(vector.get("body", "")).encode()
