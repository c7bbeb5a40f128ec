"""Images: the OCI documents that put layers together (github.com/opencontainers/image-spec, v1.1). Pure and deterministic."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from sless_builder.domain.build import Source
from sless_builder.domain.layers import DIGEST_PREFIX, Layer

_MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its two documents, as they are stored under their digests."""

    config: bytes
    manifest: bytes

    @property
    def objects(self) -> dict[str, bytes]:
        """The documents by their keys in the object store."""
        return {f"images/sha256/{_sha256(document)}": document for document in (self.config, self.manifest)}

    def reference(self, source: Source) -> str:
        """The image's name with its digest."""
        return f"sless/{source.namespace}/{source.name}@{DIGEST_PREFIX}{_sha256(self.manifest)}"


def image_of(layers: tuple[Layer, ...], source: Source, architecture: str) -> Image:
    """The image of a version; `architecture` as OCI names it ("amd64"). It depends on nothing but layers, runtime and entrypoint."""
    config = _document(
        {
            "architecture": architecture,
            "config": {"Env": [f"SLESS_ENTRYPOINT={source.entrypoint}"], "Labels": {"sless.runtime": source.runtime}},
            "os": "linux",
            "rootfs": {"diff_ids": [layer.digest for layer in layers], "type": "layers"},
        }
    )
    manifest = _document(
        {
            "config": _descriptor(_CONFIG_TYPE, DIGEST_PREFIX + _sha256(config), len(config)),
            "layers": [_descriptor(_LAYER_TYPE, layer.digest, layer.size) for layer in layers],
            "mediaType": _MANIFEST_TYPE,
            "schemaVersion": 2,
        }
    )
    return Image(config, manifest)


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, object]:
    return {"digest": digest, "mediaType": media_type, "size": size}


def _document(content: dict[str, object]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
