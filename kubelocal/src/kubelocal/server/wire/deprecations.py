"""What answers about deprecated kinds and versions warn of, in the `Warning` header.

Every request for a deprecated version is warned of, also one that only reads or that is refused;
kubectl prints each text once. Source: KEP-1693; the prerelease lifecycle of the built-in types and
the fields `deprecated` and `deprecationWarning` of a CustomResourceDefinition's versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubelocal.server import causes
from kubelocal.server.causes import Cause
from kubelocal.server.types.kinds import Kind
from kubelocal.server.types.version_ranks import version_rank

__all__ = ["custom_deprecation", "deprecation", "deprecation_problems"]

MAXIMUM_LENGTH: Final = 256
_BUILT_IN: Final[Mapping[str, str]] = {
    "componentstatuses": "v1 ComponentStatus is deprecated in v1.19+",
    "endpoints": ("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
}


def deprecation(kind: Kind) -> str | None:
    """Return what those who request `kind` are warned of."""
    if kind.custom is not None:
        return kind.custom.deprecation
    return _BUILT_IN.get(kind.resource)


def custom_deprecation(spec: Mapping[str, Any], version: Mapping[str, Any]) -> str | None:
    """Return what a CRD states of one of its versions; by default a newer version is named."""
    if not version.get("deprecated"):
        return None
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    group, kind, name = spec["group"], spec["names"]["kind"], version["name"]
    newer = [
        other["name"]
        for other in spec["versions"]
        if other.get("served")
        and not other.get("deprecated")
        and version_rank(other["name"]) > version_rank(name)
    ]
    text = f"{group}/{name} {kind} is deprecated"
    if newer:
        text += f"; use {group}/{max(newer, key=version_rank)} {kind}"
    return text


def deprecation_problems(version: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """Yield what is wrong with the `deprecationWarning` of a CRD's version."""
    text = version.get("deprecationWarning")
    if text is None:
        return
    where = f"{field}.deprecationWarning"
    if not version.get("deprecated"):
        yield causes.bad(where, text, "can only be set for deprecated versions")
        return
    if len(text.encode()) > MAXIMUM_LENGTH:
        yield causes.bad(where, text, f"must be <= {MAXIMUM_LENGTH} characters long")
    if not text:
        yield causes.bad(where, text, "must not be an empty string")
    place = next((place for place, each in enumerate(text) if not each.isprintable()), None)
    if place is not None:
        at = len(text[:place].encode())
        problem = "must only contain printable UTF-8 characters; non-printable character found at"
        yield causes.bad(where, text, f"{problem} index {at}")
