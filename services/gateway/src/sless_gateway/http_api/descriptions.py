"""The descriptions of all operations, by the names under which the route table has them."""

from __future__ import annotations

from typing import Final

from sless_contracts import limits

from sless_gateway.http_api import shapes
from sless_gateway.http_api.description import BYTES, FLAG, JSON, STRING, TEXT, ZIP, Content, Description, Query, Reply
from sless_gateway.http_api.forms import CreateFunctionForm, FunctionForm
from sless_gateway.http_api.key_forms import ApiKeyForm

_CONFIGURATION: Final = {"runtime": "python3.11", "entrypoint": "handler.handle"}
_FUNCTION: Final = Content(JSON, shapes.FunctionShape)
_WAIT: Final = Query(
    "wait",
    "Hold the answer for as many seconds, until the outcome is known.",
    {"type": "integer", "minimum": 0, "maximum": limits.WAIT_SEC.value},
)
_UPLOAD_FORM: Final = {
    "type": "object",
    "properties": {
        "code": {**BYTES, "description": "The zip."},
        "config": {
            **STRING,
            "contentMediaType": JSON,
            "description": "Configuration that changes with the code: a JSON object with the fields of the resource, those that "
            "it has change. With `activate=false`: `runtime` and `entrypoint` alone, which belong to the version.",
        },
    },
    "required": ["code"],
    "additionalProperties": False,
}

_UNKNOWN_YET: Final = Reply("The outcome is not known yet at the end of `wait`.", [_FUNCTION], etag=True)

WHO_AM_I: Final = Description(
    id="whoAmI", summary="Who is calling", replies={200: Reply("The caller.", [Content(JSON, shapes.WhoAmIShape)])}
)
ENSURE_NAMESPACE: Final = Description(
    id="ensureNamespace",
    summary="Make the namespace when it isn't there",
    replies={200: Reply("The namespace.", [Content(JSON, shapes.NamespaceShape)], etag=True)},
    conditional=True,
)
DELETE_NAMESPACE: Final = Description(
    id="deleteNamespace",
    summary="Delete the namespace with all that is in it",
    replies={204: Reply("Nothing of it can be called any more.")},
    query=[Query("confirm", "The namespace again.", {**STRING, "minLength": 1}, required=True)],
    conditional=True,
    errors=[404, 409],
)
LIST_API_KEYS: Final = Description(
    id="listApiKeys",
    summary="All API keys of the namespace, newest first",
    replies={200: Reply("The keys, without their secrets.", [Content(JSON, list[shapes.ApiKeyShape])])},
)
CREATE_API_KEY: Final = Description(
    id="createApiKey",
    summary="Make an API key, which acts for its maker in this namespace; not possible with an API key",
    body=[Content(JSON, ApiKeyForm, {"name": "ci", "expires_at": "2099-01-31T12:00:00Z"})],
    replies={201: Reply("The key, with its secret this once.", [Content(JSON, shapes.NewApiKeyShape)], etag=True)},
    conditional=True,
    errors=[409],
)
DELETE_API_KEY: Final = Description(
    id="deleteApiKey",
    summary="Revoke an API key; not possible with an API key",
    replies={204: Reply("Within five seconds nobody can use it any more.")},
    conditional=True,
    errors=[404],
)
LIST_FUNCTIONS: Final = Description(
    id="list{Kinds}",
    summary="All {kinds} of the namespace, by name",
    replies={200: Reply("The {kinds}.", [Content(JSON, list[shapes.FunctionShape])])},
)
CREATE_FUNCTION: Final = Description(
    id="create{Kind}",
    summary="Create a {kind}",
    body=[Content(JSON, CreateFunctionForm, {"name": "hello", **_CONFIGURATION})],
    replies={201: Reply("The {kind}, which waits for code.", [_FUNCTION], etag=True)},
    conditional=True,
    errors=[409],
)
GET_FUNCTION: Final = Description(
    id="get{Kind}", summary="One {kind}", replies={200: Reply("The {kind}.", [_FUNCTION], etag=True)}
)
REPLACE_FUNCTION: Final = Description(
    id="replace{Kind}",
    summary="Replace the configuration of a {kind}; what is left out gets its default",
    body=[Content(JSON, FunctionForm, {**_CONFIGURATION, "memory_mb": 256, "env_vars": {"GREETING": "Hello"}})],
    query=[_WAIT],
    replies={
        200: Reply("The {kind} with its new configuration; with `wait`: in effect.", [_FUNCTION], etag=True),
        202: _UNKNOWN_YET,
    },
    conditional=True,
    errors=[409, 422],
)
DELETE_FUNCTION: Final = Description(
    id="delete{Kind}",
    summary="Delete a {kind}",
    replies={204: Reply("Its URL answers 404 from now on.")},
    conditional=True,
    errors=[409],
)
UPLOAD_CODE: Final = Description(
    id="upload{Kind}",
    summary="Upload code: a new version, built, then served",
    body=[
        Content(ZIP, BYTES),
        Content("application/octet-stream", BYTES),
        Content("multipart/form-data", _UPLOAD_FORM),
    ],
    query=[_WAIT, Query("activate", "Whether the version is to serve once it is built.", FLAG)],
    replies={
        200: Reply("The version; with `wait`: it serves.", [Content(JSON, shapes.UploadShape)]),
        202: Reply("Not known yet at the end of `wait`.", [Content(JSON, shapes.UploadShape)]),
    },
    conditional=True,
    errors=[409, 413, 415, 422, 429],
)
CREATE_VERSION: Final = Description(
    id="create{Kind}Version",
    summary="The same as upload",
    body=UPLOAD_CODE.body,
    query=UPLOAD_CODE.query,
    replies=UPLOAD_CODE.replies,
    conditional=True,
    errors=UPLOAD_CODE.errors,
)
LIST_VERSIONS: Final = Description(
    id="list{Kind}Versions",
    summary="The versions that are kept, newest first",
    replies={200: Reply("The versions.", [Content(JSON, list[shapes.VersionShape])])},
)
GET_VERSION: Final = Description(
    id="get{Kind}Version",
    summary="One version",
    replies={200: Reply("The version.", [Content(JSON, shapes.VersionShape)], etag=True)},
)
ACTIVATE_VERSION: Final = Description(
    id="activate{Kind}Version",
    summary="Have a built version serve, with its runtime and entrypoint",
    query=[_WAIT],
    replies={
        200: Reply("The {kind}, on its way to that version; with `wait`: served by it.", [_FUNCTION], etag=True),
        202: _UNKNOWN_YET,
    },
    conditional=True,
    errors=[409, 422],
)
GET_SOURCE: Final = Description(
    id="get{Kind}Source",
    summary="The source of the version that serves, of the newest while none does",
    replies={
        200: Reply(
            f"The files, at most {limits.SOURCE_BYTES.value} bytes of them; or the zip as it was uploaded.",
            [Content(JSON, shapes.SourceShape), Content(ZIP, BYTES)],
            etag=True,
        )
    },
)
GET_VERSION_SOURCE: Final = Description(
    id="get{Kind}VersionSource", summary="A version's source", replies=GET_SOURCE.replies
)
GET_BUILD_LOG: Final = Description(
    id="get{Kind}BuildLog",
    summary="A version's build log",
    query=[Query("follow", "Go on until the build has ended.", FLAG)],
    replies={200: Reply("The log.", [Content(TEXT, STRING)])},
)
INVOKE: Final = Description(
    id="invoke{Kind}",
    summary="Call a {kind} as its owner, with any method",
    body=[Content("*/*", {})],
    replies={},
    errors=[404, 409, 429, 502, 504],
    passes=True,
)
CALL_URL: Final = Description(
    id="callUrl",
    summary="Call a service by its public URL, with any method and any path below it",
    body=[Content("*/*", {})],
    replies={},
    errors=[401, 403, 404, 429, 502, 504],
    passes=True,
)
HEALTH: Final = Description(
    id="health", summary="The gateway lives", replies={200: Reply("It does.", [Content(JSON, shapes.HealthShape)])}
)
READY: Final = Description(
    id="ready", summary="Calls can be made", replies={200: Reply("They can.", [Content(JSON, shapes.HealthShape)])}
)
METRICS: Final = Description(
    id="metrics",
    summary="Counters for Prometheus",
    replies={200: Reply("The counters.", [Content(TEXT, STRING)])},
)
OPENAPI: Final = Description(
    id="openApi",
    summary="This document",
    replies={200: Reply("OpenAPI 3.1.", [Content(JSON, {"type": "object"})])},
)
