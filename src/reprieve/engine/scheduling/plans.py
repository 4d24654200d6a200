"""Turns chosen victims into a plan that can be committed, recorded and replayed.

The plan names pods by uid: one victim each, with the name of its unit where a whole group is
evicted: the group's key, or that of the first pod where a gang has none. Source: the design's
"Intent log and executor"; specification 7.8 and 8.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from reprieve.engine.cluster.arrays import I64
from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending, Snapshot
from reprieve.engine.cluster.texts import texts_at
from reprieve.engine.many import many
from reprieve.engine.placement.profile import VictimChoice
from reprieve.engine.plan import Plan, Plane, Proof, ProofLevel, Victim, plan_id
from reprieve.engine.scheduling.outcome import Preemption, UnitVictim, pods_of
from reprieve.engine.scheduling.victims.harm import IDLE
from reprieve.units.ids import Uid
from reprieve.units.references import Reference

__all__ = ["COMPOSITE_API_VERSION", "GROUP_API_VERSION", "plan_of"]

GROUP_API_VERSION = "scheduling.k8s.io/v1beta1"
COMPOSITE_API_VERSION = "scheduling.k8s.io/v1alpha3"

_WHOLE = "lower priority, whole group"
_SINGLE = "lower priority"
_IDLE = "idle"
_LEAST_LOST = "least lost work"


def plan_of(
    snapshot: Snapshot,
    preemptor: GroupRow | Pending,
    queued: Sequence[Pending],
    found: Preemption,
    policy: str,
    *,
    best: bool = False,
) -> Plan:
    """Return the plan of a preemption that found its victims.

    `policy`: a text that changes whenever the policy does. `best`: the victims were chosen by the
    least cost.
    """
    if isinstance(preemptor, GroupRow):
        version = COMPOSITE_API_VERSION if preemptor.composite else GROUP_API_VERSION
        kind = preemptor.kind.value
        ref = Reference(version, kind, preemptor.namespace, preemptor.name, preemptor.uid)
    else:
        row = preemptor.row
        ref = Reference("v1", "Pod", row.namespace, row.name, row.uid)
    slots = pods_of(found.victims)
    # Texts of pods lie in memory in the order of slots, so that reading them in that of the victims
    # is half as fast.
    order = np.argsort(slots)
    uids = texts_at(snapshot.pod_uids, slots[order].tolist())
    victims = _victims(snapshot, found.victims, slots, order, uids)
    sums = snapshot.pod_requests[slots].sum(axis=0).tolist()
    freed = {name: sum_ for name, sum_ in zip(snapshot.resources, sums, strict=True) if sum_}
    placed = dict(found.nominated)
    need: dict[str, int] = {}
    for pending in queued:
        if pending.row.uid in placed:
            for name, amount in _requests(snapshot, pending.pod_class).items():
                need[name] = need.get(name, 0) + amount
    return Plan(
        id=plan_id(Plane.SCHEDULING, ref.uid, uids, policy),
        plane=Plane.SCHEDULING,
        revision=snapshot.revision,
        proof=Proof(
            ProofLevel.PLACEMENT,
            need=need,
            freed=freed,
            profile=VictimChoice.BEST if best else VictimChoice.COMPATIBLE,
            gap=found.gap,
        ),
        preemptor=ref,
        victims=victims,
        placement=found.nominated,
        reprieved=dict(found.reprieved),
    )


def _victims(
    snapshot: Snapshot, units: Sequence[UnitVictim], slots: I64, order: I64, uids: Sequence[Uid]
) -> tuple[Victim, ...]:
    """Return the pods of these units in order, one victim each.

    `slots`: of these pods; `order` sorts them, and `uids` are in that order.
    """
    keys = texts_at(snapshot.pod_keys, slots[order].tolist())
    # The texts of namespaces are the cluster's own: a hundred thousand more cost memory and time.
    labels = snapshot.pod_labels[slots[order]].tolist()
    spaces = {number: _namespace(snapshot, number) for number in set(labels)}
    names = {number: len(space) + 1 for number, space in spaces.items()}
    sorted_pods = many(
        Reference,
        len(slots),
        api_version=repeat("v1"),
        kind=repeat("Pod"),
        namespace=map(spaces.__getitem__, labels),
        name=[key[names[number] :] for key, number in zip(keys, labels, strict=True)],
        uid=uids,
        resource_version=repeat(""),
    )
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    pods = list(map(sorted_pods.__getitem__, place.tolist()))
    classes = snapshot.pod_class[slots].tolist()
    requests = {number: _requests(snapshot, number) for number in set(classes)}
    rules: list[str] = []
    together: list[str] = []
    for unit in units:
        whole = (unit.group or snapshot.pod_keys[unit.pods[0]]) if unit.whole_group else ""
        together += [whole] * len(unit.pods)
        rules += [_rule(unit)] * len(unit.pods)
    return tuple(
        many(
            Victim,
            len(slots),
            subject=pods,
            root=pods,
            amounts=map(requests.__getitem__, classes),
            rule=rules,
            reason=repeat(""),
            unit=together,
        )
    )


def _namespace(snapshot: Snapshot, number: int) -> str:
    entry = snapshot.labels[number]
    assert entry is not None, "a pod's labels are never free"
    return entry.namespace


def _requests(snapshot: Snapshot, number: int) -> dict[str, int]:
    entry = snapshot.classes[number]
    assert entry is not None, "a pod's class is never free"
    return {"pods": 1, **dict(entry.requests)}


def _rule(unit: UnitVictim) -> str:
    """Return why the unit was chosen: what it lacks, then what separated it from its equals."""
    rule = _WHOLE if unit.whole_group else _SINGLE
    if unit.lost is None:
        return rule
    return f"{rule}, {_IDLE if unit.lost == IDLE else _LEAST_LOST}"
