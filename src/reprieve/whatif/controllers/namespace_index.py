"""Who owns what in a namespace, read from a cluster's lists when something changes there.

Owners stand in the namespace of what they own, or in none. Most namespaces of a large cluster do
not change in a run, and reading the owners of all pods needs as long as deciding about them.
Lists come by name, which is random for what controllers make: what is older, or was written
earlier, counts as made first.

Source: the API's ownerReferences, which name no other namespace.
"""

from __future__ import annotations

from collections import defaultdict
from operator import itemgetter
from typing import Final

import msgspec

from reprieve.kube.objects import version_number
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.controllers.owned_pods import OwnedPods, facts_in
from reprieve.whatif.copy.overlay import Change, Overlay
from reprieve.whatif.snapshots.partial import Metadata, Owned

__all__ = ["NamespaceIndex"]


_OWNED: Final = msgspec.json.Decoder(Owned)


class NamespaceIndex:
    """Gives an `OwnedPods` what is in a namespace, as soon as that matters."""

    def __init__(self, overlay: Overlay, owned: OwnedPods) -> None:
        self._overlay = overlay
        self._owned = owned
        self._left: dict[str, list[tuple[Resource, str]]] | None = None  # by namespace

    def before(self, resource: Resource, change: Change) -> None:
        """A change was stored, and the index is to get it: see that it knows the rest."""
        namespace = change.object["metadata"].get("namespace", "")
        if namespace:
            self._read(namespace, resource, change)
        elif change.new is None:
            # What has no namespace may have owned something in any.
            for each in list(self._by_namespace()):
                self._read(each, resource, change)

    def _by_namespace(self) -> dict[str, list[tuple[Resource, str]]]:
        """Return what there is in namespaces that were not looked at; pods last."""
        if self._left is None:
            self._left = defaultdict(list)
            resources = {each.resource for each in self._overlay.snapshot.kinds.values()}
            # They stand under whatever else is there.
            for resource in sorted(resources, key=lambda each: each == PODS):
                if resource.namespaced:
                    for namespace, name in self._overlay.names(resource):
                        self._left[namespace].append((resource, name))
        return self._left

    def _read(self, namespace: str, changing: Resource, change: Change) -> None:
        """Read a namespace; of what changes right now the former state."""
        left = self._by_namespace().pop(namespace, None)
        if left is None:
            return
        name = change.object["metadata"]["name"]
        read: dict[Resource, list[tuple[str, int, str, Metadata, bytes]]] = {}
        for key in (*(each for each in left if each != (changing, name)), (changing, name)):
            if key != (changing, name):
                raw = self._overlay.bytes_of(key[0], namespace, key[1])
            else:
                raw = None if change.old is None else msgspec.json.encode(change.old)
            metadata = None if raw is None else _OWNED.decode(raw).metadata
            if raw is not None and metadata is not None and metadata.owner_references:
                version = version_number(metadata.resource_version)
                row = metadata.creation_timestamp, version, key[1], metadata, raw
                read.setdefault(key[0], []).append(row)
        for resource in sorted(read, key=lambda each: each == PODS):
            for *_, name, metadata, raw in sorted(read[resource], key=itemgetter(0, 1, 2)):
                owners = tuple(owner.uid for owner in metadata.owner_references or ())
                facts = facts_in(raw) if resource == PODS else None
                self._owned.found((resource, namespace, name), metadata.uid, owners, facts)
