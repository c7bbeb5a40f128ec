"""What a route tells of itself, for the API's document: what it takes and what it answers, by the types that do so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

JSON: Final = "application/json"
TEXT: Final = "text/plain"
ZIP: Final = "application/zip"

BYTES: Final[Mapping[str, Any]] = {"type": "string", "format": "binary"}
STRING: Final[Mapping[str, Any]] = {"type": "string"}
FLAG: Final[Mapping[str, Any]] = {"type": "string", "enum": ["true", "false", "1", "0"]}


@dataclass(frozen=True, slots=True)
class Content:
    """One form of a body: its media type, its shape as a type that msgspec knows or as a JSON schema, and one that is right."""

    media_type: str
    shape: Any
    example: Any = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `etag`: whether it names the resource's state. `headers`: name → what it says."""

    what: str
    contents: Sequence[Content] = ()
    etag: bool = False
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """One parameter of the query, with its JSON schema."""

    name: str
    what: str
    schema: Mapping[str, Any]
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One operation.

    id           unique; `{Kind}` and `{Kinds}` stand for Function or Service.
    summary      a phrase; `{kind}`, `{kinds}`.
    replies      by status; errors follow from what the operation takes, but for those in `errors`.
    body         the forms of the request's body; none is taken when it is empty.
    query        parameters.
    conditional  whether If-Match is honoured.
    errors       statuses of further errors.
    passes       whether the answer is a handler's own: any status, any content.
    """

    id: str
    summary: str
    replies: Mapping[int, Reply]
    body: Sequence[Content] = ()
    query: Sequence[Query] = ()
    conditional: bool = False
    errors: Sequence[int] = ()
    passes: bool = False
