"""Dependencies, layers, images and the words of a build."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from datetime import timedelta

from sless_builder.domain.build import (
    FunctionUid,
    Problem,
    Source,
    VersionUid,
    abandoned,
    log_end,
    pause_after,
    platform_failed,
    printable,
    waiting,
)
from sless_builder.domain.image import image_of
from sless_builder.domain.layers import Layer, LayerFile, archive_key, code_key, object_key, write_layer

SOURCE = Source(VersionUid("v"), FunctionUid("f"), "sless-00", "hello", 3, "c" * 64, "python3.11", "handler.handle")


def file(path: str, content: bytes = b"", *, executable: bool = False) -> LayerFile:
    return LayerFile(path, len(content), executable, lambda: (content[:3], content[3:]))


def layer_of(*files: LayerFile) -> tuple[str, bytes]:
    out = io.BytesIO()
    digest, size = write_layer(out, files)
    assert size == len(out.getvalue())
    return digest, out.getvalue()


# -- layers


def test_a_layer_depends_on_its_files_alone_and_not_on_their_order() -> None:
    files = [file("b/c.py", b"x = 1\n"), file("a.py", b"y" * 2_000), file("b/run", b"#!", executable=True)]
    assert layer_of(*files) == layer_of(*reversed(files))
    assert layer_of(*files)[0] != layer_of(*files[1:])[0]


def test_a_layer_is_a_tar_without_times_and_owners() -> None:
    digest, data = layer_of(
        file("b/c.py", b"content"), file("a", b"", executable=True), file("lang/ü" + "x" * 200, b"1")
    )
    assert digest == "sha256:" + hashlib.sha256(data).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == ["a", "b", "b/c.py", "lang", "lang/ü" + "x" * 200]
        assert [member.mode for member in members] == [0o755, 0o755, 0o644, 0o755, 0o644]
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
        content = tar.extractfile("b/c.py")
        assert content is not None
        assert content.read() == b"content"


def test_a_layers_digest_does_not_change_from_release_to_release() -> None:
    digest, _ = layer_of(file("handler.py", b"def handle(event):\n    return 1\n"))
    assert digest == "sha256:54bad23dced152880ce8baabc2e1b38e823b7408742f59fa991207ea4cdf13fe"
    assert code_key("c", "python3.11") == hashlib.sha256(b"code\n1\npython3.11\nc\n").hexdigest()
    assert code_key("c", "python3.11") != code_key("d", "python3.11")


def test_objects_lie_under_their_digests() -> None:
    assert object_key("sha256:ab") == "layers/sha256/ab"
    assert archive_key("cd") == "code/sha256/cd"


# -- images


def test_an_image_names_its_layers_and_is_named_by_its_digest() -> None:
    layers = (Layer("k1", "sha256:" + "a" * 64, 10), Layer("k2", "sha256:" + "b" * 64, 20))
    image = image_of(layers, SOURCE, "amd64")
    assert image == image_of(layers, SOURCE, "amd64")
    manifest, config = json.loads(image.manifest), json.loads(image.config)
    assert manifest["schemaVersion"] == 2
    assert [(layer["digest"], layer["size"]) for layer in manifest["layers"]] == [
        (layer.digest, layer.size) for layer in layers
    ]
    assert manifest["config"]["digest"] == "sha256:" + hashlib.sha256(image.config).hexdigest()
    assert config["rootfs"]["diff_ids"] == [layer.digest for layer in layers]
    digest = hashlib.sha256(image.manifest).hexdigest()
    assert image.reference(SOURCE) == f"sless/sless-00/hello@sha256:{digest}"
    assert image.objects[f"images/sha256/{digest}"] == image.manifest


# -- words


def test_the_logs_end_has_whole_lines() -> None:
    text = "".join(f"line {number}\n" for number in range(1_000))
    end = log_end(text, 100)
    assert len(end) <= 100
    assert end.startswith("line ")
    assert end.endswith("line 999")
    assert log_end("short\n") == "short"
    assert log_end("x" * 300, 100) == "x" * 100


def test_no_text_moves_a_terminals_cursor() -> None:
    assert printable("a\x1b[2Jb\x00\n\tc\ud800") == "a\ufffd[2Jb\ufffd\n\tc\ufffd"
    problem = Problem("X", "m\x00", "f\x1b", quote="q\x07").printable()
    assert (problem.message, problem.file, problem.quote) == ("m\ufffd", "f\ufffd", "q\ufffd")


def test_pauses_grow_up_to_a_minute() -> None:
    seconds = [pause_after(n).total_seconds() for n in (1, 2, 3, 4, 6, 7, 1_000_000)]
    assert seconds == [1, 2, 4, 8, 32, 60, 60]


def test_waiting_and_giving_up_say_for_what() -> None:
    assert waiting("the disk is full", 4, timedelta(seconds=16)) == (
        "waiting to try again: the disk is full (attempt 4, next in 16 s)"
    )
    assert platform_failed("the disk is full", timedelta(hours=24)).message == (
        "the platform failed at this build for 24.0 h, last: the disk is full; upload the code again"
    )
    assert abandoned(5).message.startswith("5 times the builder was lost while it built this")
