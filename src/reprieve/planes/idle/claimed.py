"""Devices that pods hold or request by claims, kept up to date in the records of the pods.

A device of a claim that several pods name is counted once, for the pod that has used the claim the
longest: 1. the place of its reservation, those without one last; 2. creation; 3. uid. The others
request none, though they use a GPU: their records have the name with 0. Claims of one namespace and
name tie all pods that name them together (`PodRecord.shared`): the device comes free when the last
of them has ended. Source: resource.k8s.io/v1; `intake.claimed`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kubeworld.objects.pods import OVER
from kubeworld.units.clock import Clock
from reprieve.api.core import Pod, PodResourceClaim
from reprieve.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from reprieve.engine.cluster.devices import (
    DeviceClassRow,
    DeviceId,
    Request,
    ResourceClaimRow,
    ResourceSliceRow,
    extended_classes,
)
from reprieve.engine.cluster.rows import Entry, Kind
from reprieve.engine.idle.resources import add
from reprieve.engine.idle.vendors import Vendor
from reprieve.engine.placement.free_devices import DevicesOfNodes
from reprieve.intake.claimed import claimed_gpus
from reprieve.intake.cluster.devices import (
    device_class_entry,
    resource_claim_entry,
    resource_slice_entry,
    template_requests,
)
from reprieve.kube.cache import Cache
from reprieve.kube.objects import version_number
from reprieve.kube.resource import DEVICE_CLAIMS, DEVICE_CLASSES, DEVICE_SLICES, DEVICE_TEMPLATES
from reprieve.planes.common.mirrors.watching import Watch, Watcher, settled
from reprieve.planes.idle.records import PodRecord
from reprieve.units.ids import Uid

__all__ = ["BY_CLAIM", "ClaimedDevices", "DeviceWatches"]

BY_CLAIM: Final = "claim"


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


class DeviceWatches:
    """The kinds of `resource.k8s.io`; slices only where placements are proven.

    A cluster may serve none of them, and the right to read them may be missing: then there are no
    devices of claims.
    """

    def __init__(self, watcher: Watcher, *, on_nodes: bool) -> None:
        def watch(resource: Any, wire: type[Any], convert: Any) -> Watch[Any, _Row]:
            return watcher.watch(resource, wire, convert, required=False)

        self.claims = watch(
            DEVICE_CLAIMS, ResourceClaim, lambda obj: _Row.of(resource_claim_entry(obj))
        )
        self.templates = watch(DEVICE_TEMPLATES, ResourceClaimTemplate, _template)
        self.classes = watch(
            DEVICE_CLASSES, DeviceClass, lambda obj: _Row.of(device_class_entry(obj))
        )
        self.slices = (
            watch(DEVICE_SLICES, ResourceSlice, lambda obj: _Row.of(resource_slice_entry(obj)))
            if on_nodes
            else None
        )

    def all(self) -> tuple[Watch[Any, _Row], ...]:
        """Return the watches that there are."""
        found = (self.claims, self.templates, self.classes, self.slices)
        return tuple(watch for watch in found if watch is not None)

    async def settled(self, clock: Clock) -> None:
        """Wait until each kind has been listed, or it is known why it is not."""
        await settled(self.all(), clock)


class ClaimedDevices:
    """What pods and templates hold or request by claims."""

    def __init__(self, watches: DeviceWatches, vendors: Sequence[Vendor]) -> None:
        self._watches = watches
        self._vendors = vendors
        self._pods: Cache[Pod, PodRecord] | None = None
        self._extended: Mapping[str, DeviceClassRow] | None = None
        self._devices: DevicesOfNodes | None = None

    def follow(self, pods: Cache[Pod, PodRecord]) -> None:
        """Keep the records of these pods up to date; `remade` is part of their conversion."""
        self._pods = pods
        pods.subscribe(self._pod_changed)
        self._watches.claims.cache.subscribe(self._claim_changed)
        self._watches.classes.cache.subscribe(lambda old, new: self._class_changed())
        if self._watches.slices is not None:
            self._watches.slices.cache.subscribe(lambda old, new: self._slices_changed())

    def remade(self, record: PodRecord) -> PodRecord:
        """Return the record of a pod with what it holds and requests by claims.

        An extended resource of a class is one, too: the scheduler makes the claim when it binds.
        """
        waits = set(record.asked) & self.extended.keys()
        if not record.claims:
            return record if waits == record.claimed else replace(record, claimed=frozenset(waits))
        found: list[Mapping[str, int]] = []
        shared: list[str] = []
        for name in record.claims:
            claim = self._claim(record.namespace, name)
            gpus = {} if claim is None else self._gpus(claim)
            if claim is None or not gpus:
                continue
            users = self._users(record, name, claim)
            if len(users) > 1:
                shared.append(f"{record.namespace}/{name}")
            first = not users or users[0].uid == record.uid
            found.append(gpus if first else dict.fromkeys(gpus, 0))
            waits |= gpus.keys() if claim.allocation is None else set()
        gpus = add(record.asked, *found)
        return replace(
            record,
            row=replace(record.row, gpus=gpus),
            claimed=frozenset(waits),
            shared=tuple(shared),
        )

    def regained(self, record: PodRecord) -> PodRecord:
        """Return a pod with those of its claims' devices alone that others are given after it.

        A device that its driver publishes no more, or in a pool that lacks slices, is given to no
        pod: an eviction would free nothing.
        """
        slices = self._watches.slices
        if slices is None or not slices.reflector.synced.is_set():
            return record
        if not record.claims or not record.occupies:
            return record
        found: list[Mapping[str, int]] = []
        for name in record.claims:
            claim = self._claim(record.namespace, name)
            if claim is None or claim.allocation is None:
                continue
            held, users = self._gpus(claim), self._users(record, name, claim)
            devices = (each for each in claim.allocation.devices if each.id in self._of_nodes.given)
            kept = replace(claim, allocation=replace(claim.allocation, devices=tuple(devices)))
            first = not users or users[0].uid == record.uid
            found.append({**dict.fromkeys(held, 0), **(self._gpus(kept) if first else {})})
        gpus = add(record.asked, *found)
        return (
            record
            if gpus == record.row.gpus
            else replace(record, row=replace(record.row, gpus=gpus))
        )

    def users_of(self, claim: str) -> list[PodRecord]:
        """Return the pods that name a claim, `namespace/name`."""
        return [] if self._pods is None else self._pods.by(BY_CLAIM, claim)

    def of_pod_sets(
        self, namespace: str, sets: Iterable[tuple[int, Sequence[PodResourceClaim]]]
    ) -> dict[str, int]:
        """Return the GPUs that pods to come request by claim, each set with its number of pods.

        Each pod has a claim of its own of a template; a claim that is named is one for all.
        """
        found: list[Mapping[str, int]] = []
        named: set[str] = set()
        for count, entries in sets:
            for entry in entries:
                if entry.resource_claim_name:
                    named.add(entry.resource_claim_name)
                    continue
                name = entry.resource_claim_template_name or ""
                template = self._watches.templates.cache.named(namespace, name)
                requests: Sequence[Request] = () if template is None else template.row
                each = claimed_gpus(requests, None, self.extended, self._vendors)
                found.append({gpu: number * count for gpu, number in each.items()})
        for name in sorted(named):
            claim = self._claim(namespace, name)
            if claim is not None:
                found.append(self._gpus(claim))
        return add(*found)

    @property
    def extended(self) -> Mapping[str, DeviceClassRow]:
        """The DeviceClass that stands for each extended resource."""
        if self._extended is None:
            rows = {("", each.name): each.row for each in self._watches.classes.cache}
            self._extended = extended_classes({Kind.DEVICE_CLASS: rows})
        return self._extended

    def free_on(self, node: str, chosen: Collection[DeviceId]) -> Mapping[str, int]:
        """Return the devices of a node that no claim has, by resource name."""
        return self._of_nodes.free(node, chosen)

    @property
    def _of_nodes(self) -> DevicesOfNodes:
        if self._devices is None:
            slices = self._watches.slices
            rows: list[ResourceSliceRow] = [] if slices is None else [s.row for s in slices.cache]
            self._devices = DevicesOfNodes(rows, self.extended)
        return self._devices

    def allocated(self) -> frozenset[DeviceId]:
        """Return the devices that claims have."""
        rows = (each.row for each in self._watches.claims.cache)
        return frozenset(
            device.id
            for row in rows
            if row.allocation is not None
            for device in row.allocation.devices
            if not device.admin
        )

    def _claim(self, namespace: str, name: str) -> ResourceClaimRow | None:
        record = self._watches.claims.cache.named(namespace, name)
        row: ResourceClaimRow | None = None if record is None else record.row
        return row

    def _gpus(self, claim: ResourceClaimRow) -> dict[str, int]:
        return claimed_gpus(claim.requests, claim.allocation, self.extended, self._vendors)

    def _users(self, record: PodRecord, name: str, claim: ResourceClaimRow) -> list[PodRecord]:
        """Return the pods that name the claim and are not over, who has used it longest first."""
        found = {each.uid: each for each in self.users_of(f"{record.namespace}/{name}")}
        found[record.uid] = record
        place = {each.uid: number for number, each in enumerate(claim.reserved_for)}
        living = [pod for pod in found.values() if pod.row.phase not in OVER]

        def order(pod: PodRecord) -> tuple[int, int, str]:
            return place.get(Uid(pod.uid), len(place)), pod.row.created or 0, pod.uid

        return sorted(living, key=order)

    def _pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        # Who uses a claim has changed, or may have.
        pod = new or old
        assert pod is not None
        if old is None or new is None or old.row.phase != new.row.phase:
            for name in pod.claims:
                self._remake(f"{pod.namespace}/{name}", but=pod.uid)

    def _claim_changed(self, old: _Row | None, new: _Row | None) -> None:
        claim = new or old
        assert claim is not None
        self._remake(f"{claim.namespace}/{claim.name}")

    def _class_changed(self) -> None:
        before = self.extended.keys()
        self._extended = self._devices = None
        for claim in self._watches.claims.cache:
            self._remake(f"{claim.namespace}/{claim.name}")
        changed = before ^ self.extended.keys()
        for pod in list(self._pods or ()) if changed else ():
            if self._pods is not None and changed & pod.asked.keys():
                self._pods.remake(pod.uid, self.remade)

    def _slices_changed(self) -> None:
        self._devices = None

    def _remake(self, claim: str, but: str = "") -> None:
        for pod in self.users_of(claim):
            if pod.uid != but and self._pods is not None:
                self._pods.remake(pod.uid, self.remade)


def _template(template: ResourceClaimTemplate) -> _Row:
    metadata = template.metadata
    return _Row(
        metadata.uid,
        metadata.namespace,
        metadata.name,
        version_number(metadata.resource_version),
        template_requests(template),
    )
