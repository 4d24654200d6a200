"""Owners and children: references, names and the metadata of objects made from a template."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["child", "controller_of", "owner_reference", "suffix", "template_hash"]

Object = dict[str, Any]

# The letters and digits of generated names: no vowels and nothing that looks like another.
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


def suffix(generator: random.Random) -> str:
    """Return five characters as the API server appends them to generated names."""
    return "".join(generator.choices(_LETTERS, k=5))


def controller_of(obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the owner reference with `controller: true`, None when there is none."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def owner_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reference that a controller sets on its children."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def child(
    owner: Object,
    api_version: str,
    kind: str,
    name: str,
    template: Object,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    """Return a new object in the owner's namespace: the template's metadata and its other fields.

    Labels and annotations given here win over the template's.
    """
    body = copy.deepcopy({k: v for k, v in template.items() if k not in ("metadata", "status")})
    source = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": owner["metadata"].get("namespace", ""),
        "ownerReferences": [owner_reference(owner)],
    }
    for field, extra in (("labels", labels), ("annotations", annotations)):
        merged = {**(source.get(field) or {}), **(extra or {})}
        if merged:
            metadata[field] = merged
    if source.get("finalizers"):
        metadata["finalizers"] = list(source["finalizers"])
    return {**body, "apiVersion": api_version, "kind": kind, "metadata": metadata}


def template_hash(template: Any) -> str:
    """Return the hash of a pod template as names and labels carry it (FNV-1a, 32 bits)."""
    number = 0x811C9DC5
    for byte in json.dumps(template, sort_keys=True).encode():
        number = (number ^ byte) * 0x01000193 & 0xFFFFFFFF
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(number))
