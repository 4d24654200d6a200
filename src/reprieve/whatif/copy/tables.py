"""The objects of one kind in an overlay, and how their status is written.

A kind has its status apart where discovery names the subresource; of another one the status is
written with the object, and a write of the object alone would lose it otherwise.

Source: the API conventions of Kubernetes, spec and status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from reprieve.api.gangs import DOORS
from reprieve.kube.bodies import Json
from reprieve.kube.resource import Resource
from reprieve.whatif.snapshots.snapshot import Listed

__all__ = ["Table", "table_of", "typed"]

#: Kinds whose status is a part of them, where no discovery document states it.
_WITHOUT_STATUS: Final = {
    (door.api_version.partition("/")[0], "podgroups")
    for door in DOORS
    if not door.status_subresource
}


@dataclass(slots=True)
class Table:
    """The objects of one kind: bytes as they were listed, dicts once they were looked at."""

    resource: Resource
    objects: dict[tuple[str, str], bytes | Json]
    with_status: bool = True
    reported: list[tuple[int, bytes]] = field(default_factory=list)  # by version
    listeners: list[Callable[[bytes], None]] = field(default_factory=list)


def table_of(listed: Listed, documents: Mapping[str, bytes | None]) -> Table:
    """Return the table of a list; `documents`: discovery documents by path."""
    resource = listed.resource
    root = f"/apis/{resource.group}" if resource.group else "/api"
    document = documents.get(f"{root}/{resource.version}")
    if document is None:
        with_status = (resource.group, resource.plural) not in _WITHOUT_STATUS
    else:
        with_status = f'"{resource.plural}/status"'.encode() in document
    return Table(resource, dict(listed.objects), with_status)


def typed(resource: Resource, obj: Json) -> Json:
    """Return the object with the two fields that items of lists come without."""
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
