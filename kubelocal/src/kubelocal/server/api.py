"""The API server without a transport: what HTTP requests and machines in this process both call.

A write is one synchronous step from reading the old object to storing the new one, so writes never
interleave; what is awaited afterwards is only that the store is durable. Order inside a write:
names and namespace, system fields, defaulting and validation (`schema`), admission, ownership of
fields (`ownership`), store. Source: the generic registry of k8s.io/apiserver.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kubelocal.server.admitting import admission, limit_ranges, quotas, webhooks
from kubelocal.server.admitting.label_keys import label_keys_in_selectors
from kubelocal.server.admitting.outside import once, settled
from kubelocal.server.admitting.webhooks import Request
from kubelocal.server.errors import (
    already_exists,
    bad_request,
    method_not_allowed,
    not_found,
    path_not_found,
)
from kubelocal.server.reading import ListResult, WatchEvent, list_page, watch_events
from kubelocal.server.rights import escalation
from kubelocal.server.selectors import EVERYTHING, Selectors
from kubelocal.server.state import State
from kubelocal.server.types import conversion, definitions
from kubelocal.server.types.gates import drop_disabled
from kubelocal.server.types.kinds import Kind
from kubelocal.server.writing import lifecycle, removal, subresources
from kubelocal.server.writing.acceptance import check, decoded, mutated, succeeding
from kubelocal.server.writing.apply import apply
from kubelocal.server.writing.deletion import is_finished
from kubelocal.server.writing.naming import name_object
from kubelocal.server.writing.options import DeleteOptions, ListOptions, PatchType, WriteOptions
from kubelocal.server.writing.ownership import Manager, record_update, write_managers
from kubelocal.server.writing.patches import patched
from kubelocal.store import Stored
from kubeworld.units.instants import format_instant

__all__ = ["Api"]


class Api(State):
    """Create, read, update, patch, delete and watch objects of every served kind.

    Namespaces are "" for cluster-scoped kinds; a list or watch over all namespaces passes None.
    Every method raises `StatusError` where the real server answers with a failure.
    """

    # Reading

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        await self.store.durable()
        found = self.published(kind, namespace, name)
        (found,) = await conversion.read_as(self.store, kind, [found])
        return conversion.from_storage(kind, found.decode())

    def published(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return the object as it is on disk, for an answer to a client.

        Raises:
            StatusError: 404.
        """
        stored = self.store.published_object(conversion.shelf(kind), namespace, name)
        if stored is None:
            raise not_found(kind, name)
        return stored

    def exists(self, kind: Kind, namespace: str, name: str) -> bool:
        return self.store.get(conversion.shelf(kind), namespace, name) is not None

    async def list(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        selectors: Selectors = EVERYTHING,
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        match: str = "",
    ) -> ListResult:
        """Return one page of at most `limit` objects (0: all) in order of namespace and name."""
        await self.store.durable()
        options = ListOptions(limit, continue_token, resource_version, match)
        page = list_page(self.store, kind, namespace, selectors, options)
        return replace(page, stored=await conversion.read_as(self.store, kind, page.stored))

    def watch(
        self,
        kind: Kind,
        namespace: str | None,
        resource_version: str = "",
        selectors: Selectors = EVERYTHING,
        *,
        bookmarks: bool = False,
        send_initial_events: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """Yield what happens after `resource_version`; with "" or "0" first what exists."""
        options = ListOptions(
            resource_version=resource_version, send_initial_events=send_initial_events
        )
        return watch_events(self.store, kind, namespace, selectors, options, bookmarks)

    # Writing

    async def create(
        self, kind: Kind, namespace: str, obj: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        created = await self._settled(
            options, lambda: self._create(kind, namespace, _own(obj), options)
        )
        await self.store.durable()
        return created

    async def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        obj: dict[str, Any],
        options: WriteOptions,
        subresource: str = "",
    ) -> dict[str, Any]:
        """Replace an object or one of its subresources (`status`, `scale`, `finalize`)."""
        self._check_subresource(kind, subresource)

        def step() -> dict[str, Any]:
            old = self.read(kind, namespace, name)
            return self._update(kind, old, _own(obj), options, subresource, replaced_whole=True)

        updated = await self._settled(options, step)
        await self.store.durable()
        return updated

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: bytes,
        patch_type: PatchType,
        options: WriteOptions,
        subresource: str = "",
    ) -> dict[str, Any]:
        """Patch an object or subresource; a server-side apply creates what does not exist."""
        self._check_subresource(kind, subresource)
        result = await self._settled(
            options,
            lambda: self._patch(kind, namespace, name, patch, patch_type, options, subresource),
        )
        await self.store.durable()
        return result

    async def delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions
    ) -> dict[str, Any]:
        """Delete: the object as it is now if something keeps it, else a Status of success."""
        result = await settled(
            self.store, lambda: removal.delete(self, kind, namespace, name, options)
        )
        await self.store.durable()
        return result

    async def delete_all(self, kind: Kind, found: Sequence[Stored], options: DeleteOptions) -> None:
        """Delete many objects; those that are deleted already are fine."""
        for one in found:
            if self.exists(kind, one.namespace, one.name):
                await settled(
                    self.store,
                    partial(removal.delete, self, kind, one.namespace, one.name, options),
                )
        await self.store.durable()

    async def bind(self, namespace: str, name: str, binding: dict[str, Any]) -> dict[str, Any]:
        """Place a pod on the node that the v1 Binding names."""

        def step() -> dict[str, Any]:
            webhooks.validated_part(self, namespace, name, "binding", binding)
            return subresources.bind(self, namespace, name, binding)

        result = await settled(self.store, step)
        await self.store.durable()
        return result

    async def evict(self, namespace: str, name: str, eviction: dict[str, Any]) -> dict[str, Any]:
        """Delete a pod unless a PodDisruptionBudget forbids it (429)."""

        def step() -> dict[str, Any]:
            webhooks.validated_part(self, namespace, name, "eviction", eviction)
            return subresources.evict(self, namespace, name, eviction)

        result = await settled(self.store, step)
        await self.store.durable()
        return result

    async def _settled(
        self, options: WriteOptions, step: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        def anew() -> dict[str, Any]:
            options.warnings.clear()
            return step()

        return await settled(self.store, anew)

    # One synchronous step each

    def _create(
        self,
        kind: Kind,
        namespace: str,
        obj: dict[str, Any],
        options: WriteOptions,
        owner: Manager | None = None,
    ) -> dict[str, Any]:
        metadata = name_object(self.store, kind, namespace, obj)
        lifecycle.check_namespace(self, kind, namespace, metadata["name"])
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        metadata["uid"] = once("uid", lambda: str(uuid.uuid4()))
        metadata["creationTimestamp"] = format_instant(self.clock.wall())
        for system in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            metadata.pop(system, None)
        obj = decoded(kind, admission.prepared(kind, obj), options)
        drop_disabled(kind, obj, None)
        if admission.has_generation(kind):
            obj["metadata"]["generation"] = 1
        # What admission adds has no field manager.
        if owner is not None:
            write_managers(obj, [owner])
        else:
            obj["metadata"].pop("managedFields", None)
            sent = admission.prepared(kind, obj)
            record_update(kind, None, sent, options.field_manager, self.clock.wall(), "")
        admission.admit_create(self, kind, obj)
        request = Request(kind, "CREATE", namespace, metadata["name"], None, options)
        obj = mutated(self, request, obj)
        admission.note_gates(kind, obj)
        label_keys_in_selectors(kind, obj)
        check(kind, obj, None)
        escalation.check(self, kind, obj, None)
        webhooks.validated(self, request, obj)
        limit_ranges.check(self, kind, obj)
        quotas.check(self, kind, obj)
        return self._insert(kind, obj, options)

    def _insert(self, kind: Kind, obj: dict[str, Any], options: WriteOptions) -> dict[str, Any]:
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        if self.store.get(conversion.shelf(kind), namespace, name) is not None:
            raise already_exists(kind, name)
        definitions.check(self, kind, obj)
        if options.dry_run:
            return obj
        kept = conversion.to_storage(self.registry, self.store, kind, obj)
        self.store.put(conversion.shelf(kind), kept)
        definitions.written(self, kind, kept)
        quotas.written(self, kind, kept, None)
        return conversion.answered(kind, obj, kept)

    def created_by_apply(
        self, kind: Kind, namespace: str, obj: dict[str, Any], owner: Manager, options: WriteOptions
    ) -> dict[str, Any]:
        """Create what a server-side apply did not find."""
        return self._create(kind, namespace, obj, options, owner)

    def applied(
        self,
        kind: Kind,
        old: dict[str, Any],
        new: dict[str, Any],
        options: WriteOptions,
        subresource: str,
    ) -> dict[str, Any]:
        """Store the result of a server-side apply, whose ownership is already written."""
        managed = new["metadata"].get("managedFields")
        request = webhooks.change_of(kind, old, options, subresource)
        new = succeeding(
            kind,
            old,
            new,
            options,
            subresource,
            replaced_whole=False,
            mutate=partial(mutated, self, request),
        )
        if managed is not None:
            new["metadata"]["managedFields"] = managed
        return self.replace(request, old, new)

    def _update(
        self,
        kind: Kind,
        old: dict[str, Any],
        new: dict[str, Any],
        options: WriteOptions,
        subresource: str,
        *,
        replaced_whole: bool = False,
    ) -> dict[str, Any]:
        if subresource == "scale":
            scaled = subresources.with_scale(kind, old, new)
            request = webhooks.change_of(kind, old, options, subresource)
            webhooks.validated(self, request, subresources.scale_of(kind, scaled))
            new = succeeding(
                kind, old, scaled, options, "", replaced_whole=replaced_whole, mutate=_same
            )
            record_update(kind, old, new, options.field_manager, self.clock.wall(), "")
            self._replace(kind, old, new, options)
            return subresources.scale_of(kind, self._reread(kind, old, scaled, options))
        request = webhooks.change_of(kind, old, options, subresource)
        new = succeeding(
            kind,
            old,
            new,
            options,
            subresource,
            replaced_whole=replaced_whole,
            mutate=partial(mutated, self, request),
        )
        record_update(kind, old, new, options.field_manager, self.clock.wall(), subresource)
        return self.replace(request, old, new)

    def replace(self, request: Request, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        """Store a valid new state of an existing object, or remove what is finished."""
        webhooks.validated(self, request, new)
        assert isinstance(request.options, WriteOptions)
        return self._replace(request.kind, old, new, request.options)

    def _replace(
        self,
        kind: Kind,
        old: dict[str, Any],
        new: dict[str, Any],
        options: WriteOptions,
    ) -> dict[str, Any]:
        if new == old:
            return old
        if admission.has_generation(kind) and _desired(new) != _desired(old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        admission.admit_change(self, kind, new)
        escalation.check(self, kind, new, old)
        definitions.check(self, kind, new)
        if options.dry_run:
            return new
        kept = conversion.to_storage(self.registry, self.store, kind, new)
        if is_finished(kind, kept):
            removal.remove(self, kind, kept)
        else:
            self.store.put(conversion.shelf(kind), kept)
            definitions.written(self, kind, kept)
            quotas.written(self, kind, kept, old)
        return conversion.answered(kind, new, kept)

    def _patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: bytes,
        patch_type: PatchType,
        options: WriteOptions,
        subresource: str,
    ) -> dict[str, Any]:
        options.patched = patch_type is not PatchType.APPLY
        stored = self.store.get(conversion.shelf(kind), namespace, name)
        if patch_type is PatchType.APPLY:
            old = None if stored is None else conversion.from_storage(kind, stored.decode())
            return apply(self, kind, namespace, name, old, patch, options, subresource)
        old = self.read(kind, namespace, name)
        target = old
        if subresource != "status" or kind.custom is not None:
            # Read twice: what is made of the target is compared with the old object.
            target = self.read(kind, namespace, name)
        if subresource == "scale":
            target = subresources.scale_of(kind, target)
        new = patched(kind, target, patch, patch_type)
        return self._update(kind, old, new, options, subresource)

    def delete_now(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> None:
        """Delete without waiting for the disk and without webhooks; one already deleted is fine."""
        kind = self.registry.stored(kind.group, kind.plural) or kind
        if self.store.get(conversion.shelf(kind), namespace, name) is not None:
            removal.delete(self, kind, namespace, name, options, asking=False)

    # Inside

    def _reread(
        self, kind: Kind, old: dict[str, Any], scaled: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        if options.dry_run:
            return scaled
        metadata = old["metadata"]
        return self.read(kind, metadata.get("namespace", ""), metadata["name"])

    def _check_subresource(self, kind: Kind, subresource: str) -> None:
        if not subresource:
            return
        if subresource not in kind.subresources:
            raise path_not_found()
        if subresource not in subresources.WRITTEN:
            raise method_not_allowed()


def _own(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a copy whose parts that are changed before decoding are the server's own."""
    metadata = obj.get("metadata")
    return {**obj, "metadata": dict(metadata)} if isinstance(metadata, dict) else dict(obj)


def _same(obj: dict[str, Any]) -> dict[str, Any]:
    return obj


def _desired(obj: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}
