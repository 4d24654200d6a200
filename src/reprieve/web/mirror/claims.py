"""Devices that pods hold or wait for by ResourceClaims, under the names that resources have.

A claim counts as `engine.cluster.claimed` has it: allocated, its devices by the class of their
request or alternative; else what it requests, of alternatives the first. A claim that several pods
name is counted once, for the pod that has used it longest: 1. the place of its reservation, or of
its group's; 2. the pod's start; 3. uid. A claim that a scheduler made for extended resources is
left out: its pod requests these by name.

What a node has under a name is what claims of its pods hold there, and the devices that its slices
publish, that a class of the name selects, and that no claim has. So a device of two classes is
counted once. Source: resource.k8s.io/v1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reprieve.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from reprieve.engine.cluster.claimed import claimed_devices, named_devices
from reprieve.engine.cluster.devices import (
    DeviceClassRow,
    DeviceId,
    Request,
    ResourceClaimRow,
    ResourceSliceRow,
    extended_classes,
)
from reprieve.engine.cluster.rows import Entry, Kind
from reprieve.engine.placement.free_devices import DevicesOfNodes
from reprieve.intake.cluster.devices import (
    device_class_entry,
    resource_claim_entry,
    resource_slice_entry,
    template_requests,
)
from reprieve.kube.cache import Cache
from reprieve.kube.objects import version_number
from reprieve.web.mirror.pods import PodRecord, PodState
from reprieve.web.mirror.queues import WorkloadRecord
from reprieve.web.mirror.units import unit_id

__all__ = ["BY_CLAIM", "DeviceClaims"]

BY_CLAIM: Final = "claim"
_GROUPS: Final = "podgroups"

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the scheduling plane's tables as a record of a cache."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    row: Any

    @classmethod
    def of(cls, entry: Entry) -> _Row:
        return cls(entry.uid, entry.namespace, entry.name, entry.version, entry.row)


def _template(template: ResourceClaimTemplate) -> _Row:
    metadata = template.metadata
    version = version_number(metadata.resource_version)
    requests = template_requests(template)
    return _Row(metadata.uid, metadata.namespace, metadata.name, version, requests)


class DeviceClaims:
    """Claims, templates, classes and slices, and what follows from them of pods and nodes."""

    def __init__(
        self,
        pods: Cache[Any, PodRecord],
        stale: Callable[[Iterable[PodRecord], Iterable[str]], None],
        outdated: Callable[[], None],
        settled: Callable[[], None],
    ) -> None:
        """Follow the pods, whose index `BY_CLAIM` has namespace and name of their claims.

        `stale`: what these pods hold, or these nodes have, may be different; `outdated`: of all.
        """
        self._pods = pods
        self._stale, self._outdated = stale, outdated
        self.claims: Cache[ResourceClaim, _Row] = Cache(
            lambda claim: _Row.of(resource_claim_entry(claim)), {"device": _devices_of}
        )
        self.templates: Cache[ResourceClaimTemplate, _Row] = Cache(_template)
        self.classes: Cache[DeviceClass, _Row] = Cache(
            lambda found: _Row.of(device_class_entry(found))
        )
        self.slices: Cache[ResourceSlice, _Row] = Cache(
            lambda found: _Row.of(resource_slice_entry(found)),
            {"node": _nodes_of, "pool": lambda each: (_pool_of(each.row),)},
        )
        self._extended: Mapping[str, DeviceClassRow] | None = None
        self._published: dict[str, DevicesOfNodes] = {}
        # Who has used a claim longest, by namespace and name; and claims whose users changed since.
        self._first: dict[tuple[str, str], str] = {}
        self._changed: set[tuple[str, str]] = set()
        self.claims.subscribe(self._claim_changed, settled)
        self.templates.subscribe(lambda old, new: outdated(), settled)
        self.classes.subscribe(lambda old, new: self._class_changed(), settled)
        self.slices.subscribe(self._slice_changed, settled)
        pods.subscribe(self._pod_changed)

    def refresh(self) -> None:
        """Report as stale what pods hold whose claims have other users than before."""
        while self._changed:
            self._stale(self._pods.by(BY_CLAIM, self._changed.pop()), ())

    def of_pod(self, pod: PodRecord) -> Sequence[tuple[str, int]]:
        """Return what a pod requests, with the devices of its claims."""
        if not pod.claims:
            return pod.amounts
        total = Counter(dict(pod.amounts))
        for name, template in pod.claims:
            total.update(self._of_claim(pod, name, template))
        return tuple(total.items())

    def of_workload(self, workload: WorkloadRecord) -> tuple[Amounts, list[tuple[int, Amounts]]]:
        """Return what all pods of a Workload request, and each shape, with their claims.

        Each pod has a claim of its own of a template; a claim that is named is one for all.
        """
        shapes: list[tuple[int, Amounts]] = []
        total: Counter[str] = Counter()
        shared: dict[str, None] = {}
        for (count, amounts), claims in zip(workload.shape, workload.claims, strict=True):
            each = Counter(dict(amounts))
            for name, template in claims:
                if name:
                    shared[name] = None
                else:
                    each.update(self._of_template(workload.namespace, template))
            shapes.append((count, each))
            total.update({name: count * amount for name, amount in each.items()})
        for name in shared:
            if (claim := self._claim(workload.namespace, name)) is not None:
                total.update(self._named(claim))
        return total, shapes

    def free_on(self, node: str) -> Amounts:
        """Return the devices on a node that no claim has, by resource name."""
        total: Counter[str] = Counter()
        newest: dict[tuple[str, str], int] = {}
        here = self.slices.by("node", node)
        for each in here:
            pool = _pool_of(each.row)
            newest[pool] = max(newest.get(pool, 0), each.row.generation)
        for each in here:
            if each.row.generation == newest[_pool_of(each.row)]:
                used = {device for device in _ids_of(each.row) if self.claims.by("device", device)}
                total.update(self._of_slice(each).free(node, used))
        return total

    def _of_claim(self, pod: PodRecord, name: str, template: str) -> Amounts:
        claim = self._claim(pod.namespace, name) if name else None
        if claim is None:
            made = pod.state.waits and template and not name
            return self._of_template(pod.namespace, template) if made else {}
        if claim.extended or (claim.allocation is None and not pod.state.waits):
            return {}
        return self._named(claim) if self._first_user(claim) == pod.uid else {}

    def _of_template(self, namespace: str, name: str) -> Amounts:
        found = self.templates.named(namespace, name)
        requests: Sequence[Request] = () if found is None else found.row
        return named_devices(claimed_devices(requests), self._classes)

    def _named(self, claim: ResourceClaimRow) -> Amounts:
        return named_devices(claimed_devices(claim.requests, claim.allocation), self._classes)

    def _claim(self, namespace: str, name: str) -> ResourceClaimRow | None:
        found = self.claims.named(namespace, name)
        row: ResourceClaimRow | None = None if found is None else found.row
        return row

    def _first_user(self, claim: ResourceClaimRow) -> str:
        """Return the uid of the pod that has used a claim longest; there is one that names it."""
        key = claim.namespace, claim.name
        if key not in self._first:
            self._first[key] = self._longest(claim).uid
        return self._first[key]

    def _longest(self, claim: ResourceClaimRow) -> PodRecord:
        place: dict[str, int] = {}
        for number, each in enumerate(claim.reserved_for):
            group = unit_id("podgroup", claim.namespace, each.name)
            place.setdefault(group if each.resource == _GROUPS else each.uid, number)

        def order(pod: PodRecord) -> tuple[bool, int, int, str]:
            reserved = min(place.get(pod.uid, len(place)), place.get(pod.unit, len(place)))
            return not pod.state.holds, reserved, pod.since, pod.uid

        users = self._pods.by(BY_CLAIM, (claim.namespace, claim.name))
        return min((each for each in users if each.state is not PodState.OVER), key=order)

    @property
    def _classes(self) -> Mapping[str, DeviceClassRow]:
        """The DeviceClass that stands for each extended resource."""
        if self._extended is None:
            rows = {("", each.name): each.row for each in self.classes}
            self._extended = extended_classes({Kind.DEVICE_CLASS: rows})
        return self._extended

    def _of_slice(self, each: _Row) -> DevicesOfNodes:
        known = self._published.get(each.uid)
        if known is None:
            # One slice counts by itself: a pool that lacks others is no less on this node.
            known = DevicesOfNodes([replace(each.row, slices=1)], self._classes)
            self._published[each.uid] = known
        return known

    def _pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        # Who has used a claim longest may be another pod now.
        for pod in (old, new):
            for key in () if pod is None else _claims_of(pod):
                self._first.pop(key, None)
                self._changed.add(key)

    def _claim_changed(self, old: _Row | None, new: _Row | None) -> None:
        for each in (old, new):
            if each is not None:
                key = each.namespace, each.name
                self._first.pop(key, None)
                self._changed.add(key)
                pools = {device[:2] for device in _devices_of(each)}
                slices = (found for pool in pools for found in self.slices.by("pool", pool))
                self._stale((), {node for found in slices for node in _nodes_of(found)})

    def _class_changed(self) -> None:
        self._extended = None
        self._published.clear()
        self._outdated()

    def _slice_changed(self, old: _Row | None, new: _Row | None) -> None:
        for each in (old, new):
            if each is not None:
                self._published.pop(each.uid, None)
                self._stale((), _nodes_of(each))


def _claims_of(pod: PodRecord) -> Iterator[tuple[str, str]]:
    return ((pod.namespace, name) for name, _ in pod.claims if name)


def _devices_of(claim: _Row) -> tuple[DeviceId, ...]:
    allocation = claim.row.allocation
    devices = () if allocation is None else allocation.devices
    return tuple(each.id for each in devices if not each.admin)


def _pool_of(row: ResourceSliceRow) -> tuple[str, str]:
    return row.driver, row.pool


def _ids_of(row: ResourceSliceRow) -> Iterator[DeviceId]:
    return ((row.driver, row.pool, each.name) for each in row.devices)


def _nodes_of(found: _Row) -> tuple[str, ...]:
    row: ResourceSliceRow = found.row
    reaches = [row.reach] if row.reach is not None else [each.reach for each in row.devices]
    return tuple({each.node for each in reaches if each is not None and each.node})
