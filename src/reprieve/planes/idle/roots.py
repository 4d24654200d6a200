"""Root owners: who they are for each pod, and what their annotations state now.

Chains are walked with the engine's sans-IO walk; objects between pod and root are remembered by
uid, so that the second pod of a Job costs no read (hazard H14). Roots are read again at every
polling interval, because the rights that the guide requests are get and delete, not watch: a
changed annotation and a vanished root are seen within one interval. Kinds with many roots are
read by lists where the operator may list them. Source: specification of the idle plane, section 7.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from reprieve.api.core import ObjectMeta, OwnedObject, TemplatedObject
from reprieve.engine.cluster.rows import Selector
from reprieve.engine.idle import lifecycle_facts
from reprieve.engine.idle.discovery import (
    MAXIMUM_DEPTH,
    Answer,
    Failed,
    Forbidden,
    Found,
    Lookup,
    Missing,
    Owner,
    Root,
    controller_of,
    resolve_root,
    selects_child,
)
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.idle.vendors import Vendor
from reprieve.intake.owners import found
from reprieve.intake.pods import template_gpus
from reprieve.kube import errors
from reprieve.kube.discovery import NotServed, RestMapper
from reprieve.kube.reader import Reader
from reprieve.kube.resource import Resource
from reprieve.planes.idle.ownership import Way
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["RootFacts", "Roots"]

_AT_ONCE: Final = 16
_LIST_FROM: Final = 64  # roots of one kind from which a list is cheaper than single reads


@dataclass(frozen=True, slots=True)
class RootFacts:
    """What the last read of a root showed; `annotations` are kept from the last good read."""

    state: lifecycle_facts.RootState
    annotations: Mapping[str, str]
    forbidden: str = ""  # the missing right, for people


class Roots:
    """Finds roots and keeps what is known of each."""

    def __init__(
        self,
        client: Reader,
        mapper: RestMapper,
        literal: LiteralSwitches,
        changed: Callable[[Reference], None],
    ) -> None:
        self._client = client
        self._mapper = mapper
        self._literal = literal
        self._changed = changed
        self._slots = asyncio.Semaphore(_AT_ONCE)
        # Objects met between pods and roots, by uid; forgotten when no pod leads through them.
        self._between: dict[str, Found] = {}
        # One lock for each object that is being requested now.
        self._asking: dict[str, asyncio.Lock] = {}
        self._facts: dict[str, RootFacts] = {}
        # What roots select, by uid; None where the kind does not state it. Of all that are known,
        # since an eviction waits for the pods of a root that is deleted.
        self._selectors: dict[str, Selector] = {}
        self._unlistable: set[Resource] = set()

    def facts(self, uid: str) -> RootFacts | None:
        """Return what is known of a root, None before its first read."""
        return self._facts.get(uid)

    async def expect(self, pods: Iterable[Found]) -> None:
        """Read the owners of many pods, kind by kind, where lists are allowed and cheaper.

        What is not learned here is read one by one when it is needed.
        """
        below = list(pods)
        for _ in range(MAXIMUM_DEPTH):
            kinds: dict[tuple[str, str], set[str]] = {}
            for thing in below:
                owner = controller_of(thing.owners)
                if owner is not None and owner.uid not in self._between:
                    kinds.setdefault((owner.api_version, owner.kind), set()).add(owner.uid)
            below = []
            for (api_version, kind), uids in kinds.items():
                if len(uids) >= _LIST_FROM:
                    below += await self._learn_by_list(api_version, kind, uids)
            if not below:
                return

    async def resolve(self, pod: Found) -> Way:
        """Return the pod's root, and what was met on the way to it.

        Raises:
            ResolutionError: see `engine.idle.discovery`.
        """
        start = Lookup(pod.ref.api_version, pod.ref.kind, pod.ref.namespace, pod.ref.name)
        root, met = await self._walk(start, pod)
        denied: set[Uid] = set()
        if root.denied_by is not None:
            denied.add(root.denied_by.uid)
            met = met[: [thing.ref for thing in met].index(root.denied_by)]
        ancestors = {owner.uid for thing in met for owner in thing.owners}
        ancestors |= {owner.uid for owner in pod.owners if owner.controller}
        ancestors |= {thing.ref.uid for thing in met}
        return Way(root, frozenset(map(str, ancestors - denied)), frozenset(map(str, denied)))

    def knows(self, root: Reference, pod: Found) -> bool:
        """Return whether a root may have a pod that names it beside its controller.

        By its last good read; before that it is believed. Only roots are checked, which are read
        anyway: the creator of a pod decides how many objects it names, and which.
        """
        if root.uid not in self._selectors or self._literal.owner_uid_unchecked:
            return True
        return selects_child(Found(root, selector=self._selectors[root.uid]), pod)

    async def resolve_owner(self, owner: Owner, namespace: str) -> Root:
        """Return the root above an owner, which may be the owner itself.

        Raises:
            ResolutionError: see `engine.idle.discovery`.
        """
        start = Lookup(owner.api_version, owner.kind, namespace, owner.name, owner.uid)
        root, _ = await self._walk(start, None)
        return root

    async def template_gpus(self, root: Reference, vendors: Sequence[Vendor]) -> dict[str, int]:
        """Return the GPUs of one pod that a root will make; none when it cannot be read."""
        try:
            resource = await self._mapper.resource_for(root.api_version, root.kind)
            namespace = root.namespace if resource.namespaced else ""
            read = await self._client.get(resource, namespace, root.name, TemplatedObject)
        except (errors.ApiError, NotServed):
            return {}
        return template_gpus(read, vendors)

    async def _walk(self, start: Lookup, pod: Found | None) -> tuple[Root, list[Found]]:
        met: list[Found] = []
        walk = resolve_root(start, self._literal, pod)
        try:
            wanted = next(walk)
            while True:
                answer = await self._answer(wanted)
                if isinstance(answer, Found):
                    met.append(answer)
                wanted = walk.send(answer)
        except StopIteration as end:
            root: Root = end.value
        return root, met

    async def read(self, root: Reference) -> RootFacts:
        """Read one root now."""
        answer, metadata = await self._get(
            Lookup(root.api_version, root.kind, root.namespace, root.name)
        )
        return self._learn(root, answer, metadata)

    async def read_all(self, roots: Iterable[Reference], known: Container[str]) -> None:
        """Read all these roots again, and forget the others.

        `known`: the uids of roots of which is remembered what they select.
        """
        by_kind: dict[tuple[str, str], list[Reference]] = {}
        wanted: set[str] = set()
        for root in roots:
            by_kind.setdefault((root.api_version, root.kind), []).append(root)
            wanted.add(root.uid)
        for uid in [uid for uid in self._facts if uid not in wanted]:
            del self._facts[uid]
        for uid in [uid for uid in self._selectors if uid not in known]:
            del self._selectors[uid]
        async with asyncio.TaskGroup() as group:
            for members in by_kind.values():
                group.create_task(self._read_kind(members))

    def forget_between(self, used: frozenset[str]) -> None:
        """Forget remembered objects that no pod leads through any more."""
        for uid in [uid for uid in self._between if uid not in used]:
            del self._between[uid]

    async def _read_kind(self, roots: list[Reference]) -> None:
        if len(roots) >= _LIST_FROM and await self._read_by_list(roots):
            return
        async with asyncio.TaskGroup() as group:
            for root in roots:
                group.create_task(self.read(root))

    async def _read_by_list(self, roots: list[Reference]) -> bool:
        try:
            resource = await self._mapper.resource_for(roots[0].api_version, roots[0].kind)
            if resource in self._unlistable:
                return False
            left: dict[tuple[str, str], list[Reference]] = {}
            for root in roots:
                namespace = root.namespace if resource.namespaced else ""
                left.setdefault((namespace, root.name), []).append(root)
            async for page in self._client.list_pages(resource, OwnedObject):
                self._learn_page(page.items, left)
        except (errors.Forbidden, errors.NotFound):
            self._unlistable.add(resource)
            return False
        except (errors.ApiError, NotServed):
            return False
        for root in itertools.chain.from_iterable(left.values()):
            self._learn(root, Missing(), ObjectMeta())
        return True

    def _learn_page(
        self, items: list[OwnedObject], left: dict[tuple[str, str], list[Reference]]
    ) -> None:
        """Learn those of a page that are `left`; it is not kept, as it holds the whole answer."""
        for item in items:
            for root in left.pop((item.metadata.namespace, item.metadata.name), ()):
                typed = _typed(item, root.api_version, root.kind)
                self._learn(root, found(typed), item.metadata)

    async def _learn_by_list(self, api_version: str, kind: str, uids: set[str]) -> list[Found]:
        try:
            resource = await self._mapper.resource_for(api_version, kind)
            learned = []
            async for page in self._client.list_pages(resource, OwnedObject):
                for item in page.items:
                    if item.metadata.uid in uids:
                        thing = found(_typed(item, api_version, kind))
                        self._keep(thing, item.metadata)
                        learned.append(thing)
        except (errors.ApiError, NotServed):
            return []
        return learned

    async def _answer(self, wanted: Lookup) -> Answer:
        """Return what is known of an object, or query it; pods of one owner share the query."""
        uid = str(wanted.uid)
        if _is_named(self._between.get(uid), wanted):
            return self._between[uid]
        lock = self._asking.setdefault(uid, asyncio.Lock())
        async with lock:
            known = self._between.get(uid)
            answer = (
                known if known is not None and _is_named(known, wanted) else await self._ask(wanted)
            )
        if not lock.locked():
            self._asking.pop(uid, None)
        return answer

    async def _ask(self, wanted: Lookup) -> Answer:
        answer, metadata = await self._get(wanted)
        if isinstance(answer, Found):
            self._keep(answer, metadata)
        return answer

    def _keep(self, thing: Found, metadata: ObjectMeta) -> None:
        if thing.children is None:  # a list of children is true for a moment only
            self._between[thing.ref.uid] = thing
        if controller_of(thing.owners) is None:
            self._learn(thing.ref, thing, metadata)

    async def _get(self, wanted: Lookup) -> tuple[Answer, ObjectMeta]:
        try:
            resource = await self._mapper.resource_for(wanted.api_version, wanted.kind)
            namespace = wanted.namespace if resource.namespaced else ""
            async with self._slots:
                read = await self._client.get(resource, namespace, wanted.name, OwnedObject)
        except (errors.NotFound, NotServed) as missing:
            return Missing(str(missing)), ObjectMeta()
        except errors.Forbidden as refusal:
            return Forbidden(str(refusal)), ObjectMeta()
        except errors.ApiError as failure:
            return Failed(str(failure)), ObjectMeta()
        return found(_typed(read, wanted.api_version, wanted.kind)), read.metadata

    def _learn(self, root: Reference, answer: Answer, metadata: ObjectMeta) -> RootFacts:
        before = self._facts.get(root.uid)
        kept = before.annotations if before is not None else {}
        match answer:
            case Found(ref):
                state: lifecycle_facts.RootState = lifecycle_facts.Present(
                    ref.uid, terminating=metadata.deletion_timestamp is not None
                )
                annotations = metadata.annotations or {}
                facts = RootFacts(state, annotations if ref.uid == root.uid else kept)
                if ref.uid == root.uid:
                    self._selectors[root.uid] = answer.selector
            case Missing():
                facts = RootFacts(lifecycle_facts.Missing(), kept)
            case Forbidden(detail):
                facts = RootFacts(lifecycle_facts.Unreadable(detail), kept, forbidden=detail)
            case Failed(detail):
                facts = RootFacts(lifecycle_facts.Unreadable(detail), kept)
        self._facts[root.uid] = facts
        if before is not None and facts != before:
            self._changed(root)
        return facts


def _is_named(known: Found | None, wanted: Lookup) -> bool:
    """Whether what is remembered under a uid is what the reference names, in its namespace."""
    return known is not None and (
        (known.ref.kind, known.ref.name) == (wanted.kind, wanted.name)
        and known.ref.namespace in ("", wanted.namespace)
    )


def _typed(item: OwnedObject, api_version: str, kind: str) -> OwnedObject:
    """Return an object with its type, which items of a list have not."""
    return msgspec.structs.replace(item, api_version=api_version, kind=kind)
