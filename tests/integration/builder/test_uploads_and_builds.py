"""From an upload to a built version, against a real database and a real registry."""

from __future__ import annotations

import json
import marshal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from sless.builder.v1 import builder_pb2 as pb
from sless.registry.v1 import registry_pb2

if TYPE_CHECKING:
    from sless.builder.v1.builder_pb2_grpc import BuilderServiceAsyncStub
from sless_platform.errors import (
    Aborted,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PlatformError,
    ResourceExhausted,
    Unauthenticated,
)

from tests.support import archives
from tests.support.builder import (
    BUILT,
    FAILED,
    BuilderClient,
    BuilderPlace,
    new_request_id,
    python311,
    running_builder,
    sha256_of,
    until,
    upload_messages,
)
from tests.support.registry import NAMESPACE, OTHER_NAMESPACE, OTHER_SUB


async def built(builder: BuilderClient, archive: bytes, name: str = "hello") -> registry_pb2.Version:
    number = (await builder.upload(archive, name)).version.version
    version = await builder.ended(number, name)
    assert version.state == BUILT, version.message
    return version


def layer_folder(place: BuilderPlace, digest: str) -> Path:
    return place.folder / "layers" / digest.removeprefix("sha256:")


async def test_an_upload_becomes_a_version_with_layers_and_an_image(builder: BuilderClient) -> None:
    place, archive = builder.place, archives.handler()
    answer = await builder.upload(archive)
    assert answer.created
    assert (answer.version.version, answer.version.code_sha256) == (1, sha256_of(archive))
    assert answer.function.name == "hello"
    version = await builder.ended()
    assert version.state == BUILT, version.message
    assert not version.cached
    assert version.attempt == 1
    assert version.build_started_at.ToDatetime() <= version.build_finished_at.ToDatetime()
    base, code = version.layers
    assert place.layer_names() == {base, code}
    assert (layer_folder(place, code) / "handler.py").read_text() == archives.HANDLER
    assert {path.name for path in layer_folder(place, base).iterdir()} == {"main.py", "rt.py", "__pycache__"}
    await check_image(place, version)
    await place.idle()


async def check_image(place: BuilderPlace, version: registry_pb2.Version) -> None:
    name, _, digest = version.image_ref.partition("@sha256:")
    assert name == f"sless/{NAMESPACE}/hello"
    manifest = (place.folder / "objects/images/sha256" / digest).read_bytes()
    assert sha256_of(manifest) == digest
    document = json.loads(manifest)
    assert [layer["digest"] for layer in document["layers"]] == list(version.layers)
    for layer in document["layers"]:
        tar = (place.folder / "objects/layers/sha256" / layer["digest"].removeprefix("sha256:")).read_bytes()
        assert (f"sha256:{sha256_of(tar)}", len(tar)) == (layer["digest"], layer["size"])
    config = json.loads(
        (place.folder / "objects/images/sha256" / document["config"]["digest"].removeprefix("sha256:")).read_bytes()
    )
    assert config["rootfs"]["diff_ids"] == list(version.layers)


async def test_layers_can_be_read_by_any_user_and_lie_where_only_the_platforms_comes_in(builder: BuilderClient) -> None:
    script = archives.Raw(b"bin/run.sh", b"#!/bin/sh\n", mode=0o100700)
    version = await built(
        builder, archives.raw_zip(archives.Raw(b"handler.py", archives.HANDLER.encode(), mode=0o100600), script)
    )
    code = layer_folder(builder.place, version.layers[1])
    modes = {path.relative_to(code).as_posix(): path.stat().st_mode & 0o7777 for path in [code, *code.rglob("*")]}
    assert modes == {
        ".": 0o755,
        "bin": 0o755,
        "bin/run.sh": 0o755,
        "handler.py": 0o644,
        "__pycache__": 0o755,
        "__pycache__/handler.cpython-311.pyc": 0o644,
    }
    assert code.parent.stat().st_mode & 0o777 == 0o700


async def test_modules_are_compiled_and_the_interpreter_believes_it(builder: BuilderClient) -> None:
    version = await built(builder, archives.zip_of({"handler.py": "X = 41 + 1\n", "lib/a.py": "Y = 'ä'\n"}))
    code = layer_folder(builder.place, version.layers[1])
    pyc = (code / "lib/__pycache__/a.cpython-311.pyc").read_bytes()
    assert pyc[4:8] == b"\x01\x00\x00\x00", "a hash that is not checked"
    assert marshal.loads(pyc[16:]).co_filename == "lib/a.py"
    (code / "handler.py").write_text("raise SystemExit('compiled again')\n")
    program = "import handler, lib.a; print(handler.X, lib.a.Y, handler.__file__)"
    ran = subprocess.run(
        [python311(), "-c", program], cwd=code, env={"PYTHONUTF8": "1"}, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["42", "ä", str(code / "handler.py")]


@pytest.mark.fault(10)
async def test_a_failed_build_names_file_and_line_and_quotes_it(builder: BuilderClient) -> None:
    await builder.upload(archives.handler("import os\n\ndef handle(event)\n    return 1\n"))
    version = await builder.ended()
    assert version.state == FAILED
    assert (version.error.reason, version.error.file, version.error.line) == ("SYNTAX_ERROR", "handler.py", 3)
    assert version.error.message == "handler.py line 3: expected ':'"
    assert "error: handler.py line 3: expected ':'\n    def handle(event)\n                     ^" in version.message
    assert len(version.message) <= 2_000
    assert (await builder.log()).rstrip("\n").endswith(version.message)
    assert await builder.place.count("layers") == 0


async def test_a_broken_module_that_is_not_the_entrypoints_is_a_warning(builder: BuilderClient) -> None:
    version = await built(builder, archives.zip_of({"handler.py": "", "old.py": "print 'x'\n"}))
    assert version.state == BUILT
    assert "warning: old.py line 1: Missing parentheses in call to 'print'" in await builder.log()


async def test_the_same_code_with_a_broken_entrypoint_fails_although_its_layer_is_there(builder: BuilderClient) -> None:
    code = archives.zip_of({"handler.py": "", "old.py": "print 'x'\n"})
    await built(builder, code)
    await builder.create("other", entrypoint="old.handle")
    await builder.upload(code, "other")
    version = await builder.ended(1, "other")
    assert version.state == FAILED
    assert (version.error.file, version.error.line) == ("old.py", 1)
    assert "print 'x'" in version.message


@pytest.mark.fault(16)
async def test_the_same_code_of_another_function_is_not_built_again(builder: BuilderClient) -> None:
    code = archives.handler()
    first = await built(builder, code)
    await builder.create("twin")
    twin = await built(builder, code, "twin")
    assert twin.cached
    assert list(twin.layers) == list(first.layers)
    assert (await builder.place.rows("SELECT runs FROM builds ORDER BY created_at"))[1]["runs"] == 0


@pytest.mark.fault(16)
async def test_the_same_code_is_not_built_again_after_delete_and_create(place: BuilderPlace) -> None:
    async with running_builder(place, SLESS_LAYERS_KEPT_SEC=600) as builder:
        await builder.create()
        first = await built(builder, archives.handler())
        await builder.delete()

        async def cleaned() -> bool:
            return await place.count("deletions") == 0 and not place.object_names("code/")

        await until(cleaned, "the function is cleaned up after")
        await builder.create()
        again = await built(builder, archives.handler())

        assert again.uid != first.uid
        assert again.cached
        assert list(again.layers) == list(first.layers)
        assert [row["runs"] for row in await place.rows("SELECT runs FROM builds")] == [0]
        assert "nothing to build" in await builder.log()


async def test_layers_that_were_lost_are_made_again(builder: BuilderClient) -> None:
    place, code = builder.place, archives.handler()
    first = await built(builder, code)
    layer = layer_folder(place, first.layers[1])
    layer.rename(place.folder / "gone")
    await builder.create("second")
    assert (await built(builder, code, "second")).cached, "its tar is still there"
    assert (layer / "handler.py").is_file()
    layer.rename(place.folder / "gone2")
    (place.folder / "objects/layers/sha256" / layer.name).unlink()
    await builder.create("third")
    third = await built(builder, code, "third")
    assert (list(third.layers), third.cached) == (list(first.layers), False)
    assert (layer / "handler.py").is_file()


async def test_a_runtime_that_changed_gets_a_new_base_layer(builder: BuilderClient) -> None:
    first = await built(builder, archives.handler())
    (builder.place.folder / "runtimes/python3.11/rt.py").write_text("x = 2\n")
    second = await built(builder, archives.handler("x = 1\n"))
    assert first.layers[0] != second.layers[0]
    assert (layer_folder(builder.place, second.layers[0]) / "rt.py").read_text() == "x = 2\n"


async def test_the_same_code_gives_the_same_image_in_another_place(builder: BuilderClient, place: BuilderPlace) -> None:
    code = archives.zip_of({"handler.py": archives.HANDLER, "a.py": "S = {'b', 'a', 'c'}\nx = 1 in {3, 2, 1}\n"})
    first = await built(builder, code)
    for folder in ("objects/layers", "objects/images", "layers"):
        (place.folder / folder).rename(place.folder / folder.replace("/", "-").join(("old-", "")))
        (place.folder / folder).mkdir(mode=0o700)
    for folder in (".unpacking", ".removed"):
        (place.folder / "old-layers" / folder).rename(place.folder / "layers" / folder)
    await place.rows("DELETE FROM layers")
    await builder.create("again")
    again = await built(builder, code, "again")
    assert list(again.layers) == list(first.layers)
    assert again.image_ref.partition("@")[2] == first.image_ref.partition("@")[2]


@pytest.mark.fault(12)
async def test_a_failed_first_build_is_replaced_and_cleaned_up_after(builder: BuilderClient) -> None:
    first = await builder.upload(archives.handler("def handle(:\n"))
    assert (await builder.ended()).state == FAILED
    again = await builder.create()
    assert again.uid != first.function.uid
    assert (await built(builder, archives.handler())).version == 1

    async def cleaned_up() -> bool:
        rows = await builder.place.rows("SELECT FROM builds WHERE function_uid = $1", first.function.uid)
        return not rows and len(builder.place.object_names("code/")) == 1

    await until(cleaned_up, "nothing is left of the function that failed")


# -- what is refused


@pytest.mark.parametrize(
    "make",
    [
        archives.empty,
        archives.traversal,
        archives.symlink,
        archives.bomb,
        archives.wrapped_in_folder,
        archives.truncated,
    ],
)
async def test_a_bad_archive_is_refused_and_leaves_nothing(builder: BuilderClient, make: object) -> None:
    assert callable(make)
    with pytest.raises(InvalidArgument) as refused:
        await builder.upload(make())
    assert (refused.value.field, refused.value.reason) == ("code", "ARCHIVE_INVALID")
    await builder.place.idle()
    assert builder.place.object_names("code/") == set()
    assert await builder.place.count("uploads") == 0
    assert (await builder.upload(archives.handler())).version.version == 1


async def test_too_large_an_archive_is_refused_while_it_streams(place: BuilderPlace) -> None:
    async with running_builder(place, SLESS_MAX_ARCHIVE_BYTES="200000") as builder:
        await builder.create()
        with pytest.raises(ResourceExhausted, match="larger than 200,000 bytes") as refused:
            await builder.upload(archives.handler() + bytes(50 << 20))
        assert (refused.value.field, refused.value.reason) == ("code", "ARCHIVE_TOO_LARGE")
        await place.idle()


async def test_what_is_no_zip_is_refused_at_its_first_bytes(builder: BuilderClient) -> None:
    began = time.monotonic()
    with pytest.raises(InvalidArgument, match="is not a zip: it begins with b'GIF8'"):
        await builder.upload(b"GIF89a" + bytes(31 << 20))
    assert time.monotonic() - began < 10


async def refusal(stub: BuilderServiceAsyncStub, namespace: str = NAMESPACE, name: str = "hello") -> PlatformError:
    head = pb.UploadHead(namespace=namespace, name=name)
    with pytest.raises(PlatformError) as refused:
        # Not a zip at all: were it read, that would be what is wrong.
        await stub.UploadCode(upload_messages(b"GIF89a", head), timeout=30)
    return refused.value


async def test_who_may_not_upload_is_told_so_before_anything_is_read(builder: BuilderClient) -> None:
    assert isinstance(await refusal(builder.nobody()), Unauthenticated)
    assert isinstance(await refusal(builder.service("invoker")), PermissionDenied)
    assert isinstance(await refusal(builder.stub(OTHER_SUB)), PermissionDenied)
    assert isinstance(await refusal(builder.stub(), namespace=OTHER_NAMESPACE), PermissionDenied)
    assert isinstance(await refusal(builder.stub(), name="nothing"), NotFound)
    assert isinstance(await refusal(builder.stub()), InvalidArgument)


async def test_the_other_kind_is_not_found(builder: BuilderClient) -> None:
    with pytest.raises(NotFound):
        await builder.upload(archives.handler(), kind=registry_pb2.FUNCTION_KIND_SERVICE)
    assert (await builder.upload(archives.handler(), kind=registry_pb2.FUNCTION_KIND_FUNCTION)).version.version == 1


async def test_an_admin_may_upload_for_others(builder: BuilderClient) -> None:
    stub = builder.stub(OTHER_SUB, "admin")
    answer = await stub.UploadCode(
        upload_messages(archives.handler(), pb.UploadHead(namespace=NAMESPACE, name="hello")), timeout=30
    )
    assert answer.version.created_by == OTHER_SUB


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [pb.UploadCodeRequest(chunk=b"PK")],
        [
            pb.UploadCodeRequest(head=pb.UploadHead(namespace=NAMESPACE, name="hello")),
            pb.UploadCodeRequest(head=pb.UploadHead(namespace=NAMESPACE, name="hello")),
        ],
        [
            pb.UploadCodeRequest(head=pb.UploadHead(namespace=NAMESPACE, name="hello")),
            pb.UploadCodeRequest(chunk=bytes((1 << 20) + 1)),
        ],
        [
            pb.UploadCodeRequest(head=pb.UploadHead(namespace=NAMESPACE, name="hello")),
            pb.UploadCodeRequest(chunk=archives.handler()),
        ],
    ],
)
async def test_messages_out_of_order_are_refused(builder: BuilderClient, messages: list[pb.UploadCodeRequest]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await builder.stub().UploadCode(iter(messages), timeout=30)
    assert refused.value.reason == "UPLOAD_MALFORMED"


HEAD = pb.UploadCodeRequest(head=pb.UploadHead(namespace=NAMESPACE, name="hello"))
END = pb.UploadCodeRequest(end=True)


def config(*paths: str, **fields: object) -> pb.UploadCodeRequest:
    """Configuration as a part of an upload."""
    function = registry_pb2.Function(**fields)  # type: ignore[arg-type]
    return pb.UploadCodeRequest(config=pb.UploadConfig(config=function, config_mask=FieldMask(paths=paths)))


@pytest.mark.parametrize("first", [True, False])
async def test_configuration_comes_before_or_after_the_archive(builder: BuilderClient, first: bool) -> None:
    archive = pb.UploadCodeRequest(chunk=archives.zip_of({"other.py": "def handle(event): return 1\n"}))
    changed = config("entrypoint", "memory_mb", entrypoint="other.handle", memory_mb=256)
    messages = [HEAD, *((changed, archive) if first else (archive, changed)), END]

    answer = await builder.stub().UploadCode(iter(messages), timeout=30)

    assert (answer.function.entrypoint, answer.function.memory_mb) == ("other.handle", 256)
    assert answer.function.generation == 2
    version = await builder.ended()
    assert (version.state, version.entrypoint) == (BUILT, "other.handle"), version.message


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        (config("entrypoint", entrypoint="other.handle"), "code", "no other.py"),
        (config("entrypoint", entrypoint="not one"), "entrypoint", "must be module.function"),
        (config("memory_mb", memory_mb=5), "memory_mb", "must be from 64 to 8192, not 5"),
        (config(memory_mb=256), None, "config_mask must name"),
    ],
)
async def test_nothing_is_changed_when_code_or_configuration_is_refused(
    builder: BuilderClient, changed: pb.UploadCodeRequest, field: str | None, said: str
) -> None:
    before = await builder.place.registry.get()
    messages = [HEAD, changed, pb.UploadCodeRequest(chunk=archives.handler()), END]

    with pytest.raises(InvalidArgument, match=said) as refused:
        await builder.stub().UploadCode(iter(messages), timeout=30)

    assert refused.value.field == field
    assert await builder.place.registry.get() == before


async def test_configuration_twice_is_refused(builder: BuilderClient) -> None:
    changed = config("memory_mb", memory_mb=256)
    with pytest.raises(InvalidArgument) as refused:
        await builder.stub().UploadCode(iter([HEAD, changed, changed, END]), timeout=30)
    assert refused.value.reason == "UPLOAD_MALFORMED"


async def test_a_stale_etag_is_refused_and_the_code_goes(builder: BuilderClient) -> None:
    with pytest.raises((Aborted, FailedPrecondition)):
        await builder.upload(archives.handler(), etag="stale")

    async def gone() -> bool:
        return not builder.place.object_names("code/") and await builder.place.count("garbage") == 0

    await until(gone, "the refused upload's object goes")
    assert await builder.place.count("uploads") == 0


async def test_the_same_request_id_gets_the_same_answer(builder: BuilderClient) -> None:
    request_id = new_request_id()
    first = await builder.upload(archives.handler(), request_id=request_id)
    again = await builder.upload(archives.handler(), request_id=request_id)
    assert first.version.uid == again.version.uid
    await builder.ended()
    assert (await builder.version(0)).version == 1


async def test_identical_content_is_the_version_that_is_there(builder: BuilderClient) -> None:
    first = await built(builder, archives.handler())
    answer = await builder.upload(archives.handler())
    assert (answer.created, answer.version.uid) == (False, first.uid)
    assert await builder.place.count("builds") == 1
    assert await builder.place.count("uploads") == 0


async def test_without_a_python_311_a_build_says_so(place: BuilderPlace) -> None:
    async with running_builder(place, SLESS_PYTHON311="") as builder:
        await builder.create()
        await builder.upload(archives.handler())
        version = await builder.ended()
        assert (version.state, version.error.reason) == (FAILED, "RUNTIME_UNAVAILABLE")
        assert "no Python 3.11" in version.message
