"""The name and namespace of a new object: as sent, generated, or refused."""

from __future__ import annotations

import secrets
from typing import Any, Final

from kubelocal.server.admitting.outside import once
from kubelocal.server.causes import Cause
from kubelocal.server.errors import bad_request, invalid
from kubelocal.server.types import conversion
from kubelocal.server.types.kinds import Kind
from kubelocal.store import Store

__all__ = ["name_object"]

# Without vowels and look-alikes, as the API generates names.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_LONGEST_PREFIX: Final = 63 - _SUFFIX_LENGTH


def name_object(store: Store, kind: Kind, namespace: str, obj: dict[str, Any]) -> dict[str, Any]:
    """Complete name and namespace in `obj` and return its metadata.

    Raises:
        StatusError: 400 or 422, there is no name, or the namespace is not the request's.
    """
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request(f"{kind.kind}.metadata is not an object")
    if not metadata.get("name") and metadata.get("generateName"):
        prefix = str(metadata["generateName"])
        metadata["name"] = once("name", lambda: _generated(store, kind, namespace, prefix))
    if not metadata.get("name"):
        message = "Required value: name or generateName is required"
        raise invalid(kind, "", [Cause("FieldValueRequired", message, "metadata.name")])
    if not kind.namespaced:
        metadata.pop("namespace", None)
    elif (metadata.get("namespace") or namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    else:
        metadata["namespace"] = namespace
    return metadata


def _generated(store: Store, kind: Kind, namespace: str, prefix: str) -> str:
    while True:
        suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_LENGTH))
        name = prefix[:_LONGEST_PREFIX] + suffix
        if store.get(conversion.shelf(kind), namespace, name) is None:
            return name
