"""What the DynamicResources filters of all pods share: devices in use, claims reserved, answers.

Devices are in use by allocated claims and by what placed pods have reserved. With `simulate_claims`
the claims that only removed pods use give theirs back. Whether a node can fulfil a list of claims
is kept per list, since the members of a gang mostly request the same, and forgotten for the nodes
that a change may concern. Of many nodes one of each likeness is examined. Source: specification
21.8 and 21.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import numpy as np

from reprieve.engine.cluster.arrays import I64, U8, Mask
from reprieve.engine.cluster.devices import (
    AllocatedDevice,
    Allocation,
    Consumer,
    DeviceId,
    ResourceClaimRow,
)
from reprieve.engine.cluster.rows import ExtendedRequest, Kind
from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.filtering import Placed, View
from reprieve.engine.placement.filters.dynamic.device_allocation import (
    AllocationFailed,
    SearchEnded,
    Wanted,
    allocate,
)
from reprieve.engine.placement.filters.dynamic.device_inventory import Inventory
from reprieve.engine.placement.filters.dynamic.device_likeness import Likeness
from reprieve.engine.placement.filters.dynamic.device_pools import Published
from reprieve.engine.placement.filters.dynamic.device_use import DeviceUse
from reprieve.engine.placement.filters.presence import Presence, uid_of
from reprieve.engine.placement.profile import FilterName
from reprieve.units.ids import Uid

__all__ = ["Answer", "Answers", "ClaimAllocation", "DeviceState", "device_state_of"]

ClaimKey = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """What is to be written for a claim before its pod is bound.

    `allocation` None: the claim has one, and only `consumer` is added to status.reservedFor.
    `extended`: the claim does not exist and is made for these requests of the pod, whose status
    then names it.
    """

    namespace: str
    name: str
    node: str
    consumer: Consumer
    allocation: Allocation | None = None
    extended: tuple[ExtendedRequest, ...] = ()


class Answer(IntEnum):
    """Whether a node can fulfil claims."""

    YES = 0
    NO = 1
    USED = 2  # it could if nothing were in use; distinguished with simulate_claims only
    ERROR = 3
    ENDED = 4  # the search was too long
    UNKNOWN = 255


@dataclass(slots=True)
class Answers:
    """What each node answers to one list of claims.

    `results`: of nodes that were examined themselves. `forgotten`: nodes that may be unknown again,
    None where any may be.
    """

    codes: U8  # (nodes,) Answer
    forgotten: set[int] | None = None
    results: dict[int, tuple[tuple[AllocatedDevice, ...], ...]] = field(default_factory=dict)
    errors: dict[int, tuple[int | None, str]] = field(default_factory=dict)  # claim, text


_NOTHING: Final = np.zeros(0, np.int64)
_HELD: Final = "held devices"
_FEW: Final = 32  # nodes that are examined without checking which of them are alike


class DeviceState:
    """Devices and claims as a view has them."""

    def __init__(self, view: View) -> None:
        snapshot = view.snapshot
        self.inventory = Inventory(view)
        self.likeness = Likeness(view, self.inventory)
        self.simulate = view.policy.simulate_claims
        self.rows: Mapping[ClaimKey, ResourceClaimRow] = snapshot.tables.get(
            Kind.RESOURCE_CLAIM, {}
        )
        self.made: dict[Uid, tuple[ClaimAllocation, ...]] = {}
        self.claims: dict[ClaimKey, tuple[str, ClaimAllocation]] = {}  # group or uid: allocation
        self.consumers: dict[ClaimKey, dict[Uid, int]] = {}  # reserved by placed pods
        self.revision = 0  # of `claims` and `consumers`
        self.forgotten = 0  # how often answers were forgotten
        self._snapshot: Snapshot = snapshot
        published = self.inventory.published
        self._use = DeviceUse(published, _held_in(snapshot, published))
        self._unused = DeviceUse(published)
        self._answers: dict[tuple[Wanted, ...], Answers] = {}
        self._presence = Presence(snapshot)
        self._claims_of: dict[Uid, list[ClaimKey]] = {}
        self._users: dict[ClaimKey, int] = {}
        if self.simulate:
            self._read_users()

    def follow(self, view: View) -> None:
        """Catch up with the pods of a view."""
        there = {uid_of(view.snapshot, pod) for pod in view.simulated}
        for uid in [uid for uid in self.made if uid not in there]:
            self.release(uid)
        for pod, came in list(self._presence.changes(view)) if self.simulate else ():
            self.change(pod, came)

    def change(self, pod: Placed, came: bool) -> bool:
        """Record a pod that was added or removed; return whether that may concern any answer."""
        if pod.pending is not None:
            return pod.pending.row.uid in self.made
        if not self.simulate:
            return False
        uid = uid_of(self._snapshot, pod)
        news = self._presence.came(pod) if came else self._presence.went(pod)
        for key in self._claims_of.get(uid, ()) if news else ():
            before = self._users[key]
            self._users[key] = after = before + (1 if came else -1)
            allocation = self.rows[key].allocation
            if allocation is not None and not before:
                self._hold(allocation.devices, 1)
            elif allocation is not None and not after:
                self._hold(allocation.devices, -1)
        return uid in self._claims_of

    def only_at_node(self, pod: Placed) -> bool:
        """Return whether what a pod has of devices is reached from its own node alone."""
        uid = uid_of(self._snapshot, pod)
        if pod.pending is not None:
            allocations = [each.allocation for each in self.made.get(uid, ())]
        else:
            allocations = [self.rows[key].allocation for key in self._claims_of.get(uid, ())]
        for allocation in allocations:
            for each in () if allocation is None else allocation.devices:
                device = self.inventory.device(each.id)
                nodes = _NOTHING if device is None else self.inventory.nodes_of(device)
                if nodes is None or any(node != pod.node for node in nodes.tolist()):
                    return False
        return True

    def reserve(self, uid: Uid, owner: str, made: tuple[ClaimAllocation, ...]) -> None:
        """A pod was placed and uses these. `owner`: its group, or its uid."""
        if not made:
            return
        self.made[uid] = made
        for each in made:
            key = (each.namespace, each.name)
            consumers = self.consumers.setdefault(key, {})
            consumers[each.consumer.uid] = consumers.get(each.consumer.uid, 0) + 1
            if each.allocation is not None:
                self.claims[key] = (owner, each)
                self._hold(each.allocation.devices, 1)
        self.revision += 1

    def release(self, uid: Uid) -> None:
        """The pod was removed again; nothing happens when it had reserved nothing."""
        for each in self.made.pop(uid, ()):
            key = (each.namespace, each.name)
            consumers = self.consumers[key]
            consumers[each.consumer.uid] -= 1
            if not consumers[each.consumer.uid]:
                del consumers[each.consumer.uid]
            if each.allocation is not None:
                del self.claims[key]
                self._hold(each.allocation.devices, -1)
            self.revision += 1

    def answers(self, wanted: tuple[Wanted, ...], nodes: Mask) -> Answers:
        """Return what nodes answer; those in `nodes` (nodes,) are known afterwards."""
        found = self._of(wanted)
        if found.forgotten is None:
            unknown = np.flatnonzero((found.codes == Answer.UNKNOWN) & nodes)
            found.forgotten = set(np.flatnonzero((found.codes == Answer.UNKNOWN) & ~nodes).tolist())
        else:
            unknown = np.array(
                [
                    node
                    for node in sorted(found.forgotten)
                    if nodes[node] and found.codes[node] == Answer.UNKNOWN
                ],
                np.int64,
            )
            found.forgotten.difference_update(unknown.tolist())
        if len(unknown) > _FEW:
            unknown = self._ask_alike(wanted, found, unknown)
        for node in unknown.tolist():
            self._ask(wanted, found, node)
        return found

    def results_at(
        self, wanted: tuple[Wanted, ...], node: int
    ) -> tuple[tuple[AllocatedDevice, ...], ...]:
        """Return the devices that claims would get on a node, nothing where it refuses them."""
        found = self.answer_at(wanted, node)
        if found.codes[node] == Answer.YES and node not in found.results:
            # Another node was examined in place of this one.
            self._ask(wanted, found, node)
        return found.results.get(node, ())

    def answer_at(self, wanted: tuple[Wanted, ...], node: int) -> Answers:
        """Return what nodes answer; this one is known afterwards."""
        found = self._of(wanted)
        if found.codes.item(node) == Answer.UNKNOWN:
            self._ask(wanted, found, node)
        return found

    def _of(self, wanted: tuple[Wanted, ...]) -> Answers:
        found = self._answers.get(wanted)
        if found is None:
            codes = np.full(len(self._snapshot.nodes), Answer.UNKNOWN, np.uint8)
            found = self._answers[wanted] = Answers(codes)
        return found

    def _ask(self, wanted: tuple[Wanted, ...], answers: Answers, node: int) -> None:
        answers.results.pop(node, None)
        try:
            result = allocate(self.inventory, self._use, node, wanted)
            if result is not None:
                answers.results[node] = result
                answers.codes[node] = Answer.YES
            else:
                could = self.simulate and allocate(self.inventory, self._unused, node, wanted)
                answers.codes[node] = Answer.USED if could else Answer.NO
        except AllocationFailed as failed:
            answers.errors[node] = (failed.claim, str(failed))
            answers.codes[node] = Answer.ERROR
        except SearchEnded:
            answers.codes[node] = Answer.ENDED

    def _ask_alike(self, wanted: tuple[Wanted, ...], answers: Answers, nodes: I64) -> I64:
        """Evaluate one node of each likeness; return those that have to be evaluated themselves."""
        classes = self.likeness.classes(wanted, self._use)
        if classes is None:
            return nodes
        alone = classes[nodes] < 0
        among = nodes[~alone]
        _, first, which = np.unique(classes[among], return_index=True, return_inverse=True)
        asked = among[first]
        for node in asked.tolist():
            self._ask(wanted, answers, node)
        found = answers.codes[asked][which]
        # A search that is ended depends on what is known of each device.
        ended = (found == Answer.ENDED) | (found == Answer.ERROR)
        answers.codes[among] = np.where(ended, Answer.UNKNOWN, found)
        return np.union1d(nodes[alone], among[ended])

    def _hold(self, devices: Iterable[AllocatedDevice], sign: int) -> None:
        for each in devices:
            if each.admin:
                continue
            if sign > 0:
                self._use.use(each.id, each.consumed)
            else:
                self._use.give(each.id, each.consumed)
            if self._answers:
                self._forget(each.id)

    def _forget(self, device: DeviceId) -> None:
        found = self.inventory.device(device)
        nodes: I64 | None = _NOTHING if found is None else self.inventory.nodes_of(found)
        self.forgotten += 1
        for answers in self._answers.values():
            answers.codes[slice(None) if nodes is None else nodes] = Answer.UNKNOWN
            if nodes is None:
                answers.results.clear()
                answers.forgotten = None
                continue
            for node in nodes.tolist():
                answers.results.pop(node, None)
                if answers.forgotten is not None:
                    answers.forgotten.add(node)

    def users(self) -> dict[ClaimKey, list[Uid]]:
        """Return the pods whose removal frees each claim's devices, with `simulate_claims`."""
        found: dict[ClaimKey, list[Uid]] = {}
        for uid, keys in self._claims_of.items():
            for key in keys:
                found.setdefault(key, []).append(uid)
        return found

    def _read_users(self) -> None:
        snapshot = self._snapshot
        placed = {
            uid: slot
            for slot, uid in enumerate(snapshot.pod_uids)
            if uid and snapshot.pod_node[slot] >= 0
        }
        groups: dict[Uid, list[Uid]] = {}
        for slot in np.flatnonzero((snapshot.pod_node >= 0) & (snapshot.pod_group >= 0)).tolist():
            group = snapshot.group_rows[int(snapshot.pod_group[slot])]
            if group is not None:
                groups.setdefault(group.uid, []).append(snapshot.pod_uids[slot])
        for key, row in self.rows.items():
            users: list[Uid] = []
            for consumer in row.reserved_for:
                # A consumer that is not placed, or of another kind, is never removed in a
                # simulation.
                users += groups.get(consumer.uid, [consumer.uid])
            if row.in_flight or not users or any(uid not in placed for uid in users):
                continue
            self._users[key] = len(users)
            for uid in users:
                self._claims_of.setdefault(uid, []).append(key)


def _held_in(snapshot: Snapshot, published: Published) -> DeviceUse:
    """Return what allocated claims use at the time of a snapshot, not to be changed."""
    claims = snapshot.tables.get(Kind.RESOURCE_CLAIM, {})
    slices = snapshot.tables.get(Kind.RESOURCE_SLICE, {})

    def held() -> DeviceUse:
        found = DeviceUse(published)
        _hold_all(found, claims.values(), 1)
        return found

    def held_since(before: DeviceUse, tables: tuple[Any, ...]) -> DeviceUse | None:
        if tables[1] is not slices:
            return None
        gone, new = snapshot.derived.between(Kind.RESOURCE_CLAIM, tables[0], claims)
        found = DeviceUse(published, before)
        _hold_all(found, gone, -1)
        _hold_all(found, new, 1)
        return found.settled()

    return snapshot.derived.of(_HELD, (claims, slices), held, held_since)


def _hold_all(use: DeviceUse, claims: Iterable[ResourceClaimRow], sign: int) -> None:
    for row in claims:
        for each in () if row.allocation is None else row.allocation.devices:
            if each.admin:
                continue
            if sign > 0:
                use.use(each.id, each.consumed)
            else:
                use.give(each.id, each.consumed)


def device_state_of(view: View) -> DeviceState:
    """Return the state of a view, made once."""
    known = view.shared.get(FilterName.DYNAMIC_RESOURCES)
    if not isinstance(known, DeviceState):
        known = view.shared[FilterName.DYNAMIC_RESOURCES] = DeviceState(view)
    return known
