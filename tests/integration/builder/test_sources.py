"""Sources: what was uploaded comes back, to who may have it."""

from __future__ import annotations

import pytest
from sless.builder.v1 import builder_pb2 as pb
from sless.registry.v1 import registry_pb2
from sless_platform.errors import NotFound, PermissionDenied, PlatformError, Unauthenticated

from tests.support import archives
from tests.support.builder import BUILT, BuilderClient
from tests.support.registry import NAMESPACE, OTHER_SUB, SUB

FILES = {"handler.py": archives.HANDLER, "lib/a.py": "A = 'ä'\n", "empty.txt": "", "data.bin": "x" * 700_000}


async def source(
    builder: BuilderClient, sub: str = SUB, *roles: str, **fields: object
) -> tuple[pb.SourceHead, dict[str, bytes], bytes]:
    """A source's head, its files, and what came of the archive."""
    asked = pb.GetSourceRequest(**{"namespace": NAMESPACE, "name": "hello", **fields})  # type: ignore[arg-type]
    head, files, loose, path = pb.SourceHead(), dict[str, bytes](), b"", ""
    async for message in builder.stub(sub, *roles).GetSource(asked, timeout=30):
        what = message.WhichOneof("message")
        if what == "head":
            head = message.head
        elif what == "file":
            path = message.file.path
            files[path] = b""
        elif path:
            files[path] += message.chunk
        else:
            loose += message.chunk
    return head, files, loose


async def test_the_files_come_back_as_they_were_uploaded_and_nothing_that_was_made(builder: BuilderClient) -> None:
    archive = archives.zip_of({**FILES, "__pycache__/handler.cpython-311.pyc": "old", ".DS_Store": "x"})
    await builder.upload(archive)
    version = await builder.ended()
    assert version.state == BUILT, version.message

    head, files, loose = await source(builder, version=1)

    assert files == {path: text.encode() for path, text in FILES.items()}
    assert list(files) == sorted(FILES)
    assert (head.version, head.runtime, head.entrypoint) == (1, "python3.11", "handler.handle")
    assert (head.files, head.archive_bytes, head.version_uid) == (len(FILES), len(archive), version.uid)
    assert loose == b""
    assert (await source(builder, version=1, archive=True))[2] == archive
    assert not builder.place.leftovers()


async def test_files_beyond_the_bound_are_left_out_whole_and_counted(builder: BuilderClient) -> None:
    await builder.upload(archives.zip_of(FILES))

    head, files, _ = await source(builder, max_bytes=1_000)

    assert list(files) == ["empty.txt", "handler.py", "lib/a.py"]
    assert head.files == len(FILES)


async def test_a_function_is_shown_as_it_serves_else_as_it_was_uploaded_last(builder: BuilderClient) -> None:
    registry = builder.place.registry
    with pytest.raises(NotFound, match="function 'hello' has no version yet"):
        await source(builder)
    for body in ("1", "2"):
        await builder.upload(archives.zip_of({"handler.py": f"def handle(event): return {body}\n"}))
        await builder.ended(int(body))
    assert (await source(builder))[0].version == 2

    await registry.user().ActivateVersion(
        registry_pb2.ActivateVersionRequest(namespace=NAMESPACE, name="hello", version=1)
    )
    assert await registry.report(await registry.get())

    head, files, _ = await source(builder)
    assert (head.version, files) == (1, {"handler.py": b"def handle(event): return 1\n"})
    assert (await source(builder, version=2))[0].version == 2


@pytest.mark.fault(35)
async def test_nobody_but_the_owner_and_admins_sees_a_source(builder: BuilderClient) -> None:
    await builder.upload(archives.handler())
    asked = pb.GetSourceRequest(namespace=NAMESPACE, name="hello", version=1)

    async def refusal(stub: object) -> PlatformError:
        with pytest.raises(PlatformError) as refused:
            async for _ in stub.GetSource(asked, timeout=30):  # type: ignore[attr-defined]
                pass
        return refused.value

    assert isinstance(await refusal(builder.nobody()), Unauthenticated)
    assert isinstance(await refusal(builder.service("invoker")), PermissionDenied)
    assert isinstance(await refusal(builder.stub(OTHER_SUB)), PermissionDenied)
    assert (await source(builder, OTHER_SUB, "admin"))[0].version == 1


async def test_a_source_whose_archive_was_cleaned_up_says_so(builder: BuilderClient) -> None:
    await builder.upload(archives.handler())
    version = await builder.ended()
    (builder.place.folder / "objects/code/sha256" / version.code_sha256).unlink()

    with pytest.raises(NotFound, match="the source of version 1 is not kept any more") as refused:
        await source(builder, version=1)
    assert refused.value.reason == "SOURCE_NOT_FOUND"
    with pytest.raises(NotFound):
        await source(builder, version=2)
    with pytest.raises(NotFound):
        await source(builder, kind=registry_pb2.FUNCTION_KIND_SERVICE)
