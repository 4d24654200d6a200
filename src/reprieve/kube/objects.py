"""What all objects have in common, read from partial structs and plain dicts alike.

The wire structs of a kind name only the fields in use; unknown fields are skipped while decoding.
A struct needs a `metadata` attribute with `uid`, `namespace`, `name` and `resource_version`, such
as `ObjectMeta`; a plain dict is read under the API's own keys.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from reprieve.api.core import MetaWithFinalizers

__all__ = [
    "Identity",
    "PartialObject",
    "identity_of",
    "version_number",
]


class PartialObject(msgspec.Struct, gc=False, rename="camel"):
    """An object of any kind, of which only the metadata is wanted."""

    metadata: MetaWithFinalizers
    api_version: str = ""
    kind: str = ""


class Identity(NamedTuple):
    """Which object, and which version of it; `version` is -1 where it is not a number."""

    uid: str
    namespace: str
    name: str
    version: int


def identity_of(obj: Any) -> Identity:
    """Return the identity of a wire struct or dict; missing parts are empty."""
    if isinstance(obj, dict):
        metadata = obj.get("metadata") or {}
        return Identity(
            metadata.get("uid", ""),
            metadata.get("namespace", ""),
            metadata.get("name", ""),
            version_number(metadata.get("resourceVersion", "")),
        )
    metadata = obj.metadata
    return Identity(
        metadata.uid,
        getattr(metadata, "namespace", ""),
        metadata.name,
        version_number(metadata.resource_version),
    )


_NOT_A_NUMBER: Final = -1


def version_number(resource_version: str) -> int:
    """Return the resourceVersion as an integer, -1 where it is none.

    Integers of one kind can be compared since Kubernetes 1.35 promises it (KEP-5504); every
    storage before that numbered the same way.
    """
    if resource_version.isascii() and resource_version.isdigit():
        return int(resource_version)
    return _NOT_A_NUMBER
