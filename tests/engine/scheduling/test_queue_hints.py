"""Which event makes which plugin ask for another try of a pod that it rejected (specification 22).

One line of the table a test: what moves the pod, and what, of the same kind, does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from reprieve.engine.cluster.rows import (
    AffinityTerm,
    Disk,
    HostPort,
    Kind,
    Labels,
    NodeTerm,
    Operator,
    PodRow,
    Requirement,
    SpreadConstraint,
    Toleration,
    VolumeUse,
)
from reprieve.engine.placement.profile import FilterName as F
from reprieve.engine.scheduling.queueing.events import DEFAULT_PREEMPTION, Event, Happening
from reprieve.engine.scheduling.queueing.hints import asks
from tests.engine.builders import matching, node, pod

H = Happening
RED: Final = {"color": "red"}
BLUE: Final = {"color": "blue"}
RED_ONLY = matching(RED)
BACKED: Final = "example.com/gpu"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"


def term(key: str = "zone", **facts: Any) -> AffinityTerm:
    return AffinityTerm(key, RED_ONLY, **{"namespaces": ("default",), **facts})


def spread(key: str = "zone", **facts: Any) -> SpreadConstraint:
    return SpreadConstraint(key, 1, **{"hard": True, "selector": RED_ONLY, **facts})


@dataclass(frozen=True, slots=True)
class Known:
    """A cluster in which class `gpus` stands for one extended resource."""

    def namespace_labels(self, namespace: str) -> Labels:
        return ()

    def device_class(self, resource: str) -> str:
        return "gpus" if resource == BACKED else ""


def wants(plugin: str, waiting: PodRow, what: Happening, **facts: Any) -> bool:
    return asks(plugin, waiting, Event(what, **facts), Known())


def other(name: str = "other", **facts: Any) -> PodRow:
    return pod(name, **{"node": "n", **facts})


@dataclass(frozen=True, slots=True)
class Case:
    """`moves` and `stays`: facts of two events."""

    plugin: str
    waiting: PodRow
    what: Happening
    moves: dict[str, Any]
    stays: dict[str, Any] | None = None


SPREAD = pod(spread=(spread(),))
AFFINE = pod(affinity=(term(),))
AVERSE = pod(anti_affinity=(term(),))
BOTH = pod(affinity=(term("rack"),), anti_affinity=(term("zone"),))
MOUNTS = pod(volumes=(VolumeUse("data"),))
SCRATCH = pod("p", volumes=(VolumeUse("scratch", ephemeral=True),))
TOLERANT = (Toleration(UNSCHEDULABLE, "Exists", effect="NoSchedule"),)
ZONED = {"zone": "a"}
DEVICES = pod(cpu=2, extended={BACKED: 1})
PLUGGED = pod(cpu=2, extended={"example.com/other": 1})

DELETED = [
    Case(F.NODE_RESOURCES_FIT, pod(cpu=1), H.POD_DELETED, {"pod": other()}),
    Case(
        F.NODE_PORTS,
        pod(host_ports=(HostPort(80),)),
        H.POD_DELETED,
        {"pod": other(host_ports=(HostPort(80, address="10.0.0.1"),))},
        {"pod": other(host_ports=(HostPort(80, "UDP"), HostPort(81)))},
    ),
    Case(
        F.POD_TOPOLOGY_SPREAD,
        SPREAD,
        H.POD_DELETED,
        {"pod": other(labels=RED)},
        {"pod": other(labels=RED, namespace="elsewhere")},
    ),
    Case(
        F.POD_TOPOLOGY_SPREAD,
        SPREAD,
        H.POD_DELETED,
        {"pod": other(labels=RED)},
        {"pod": other(labels=BLUE)},
    ),
    Case(
        F.INTER_POD_AFFINITY,
        AVERSE,
        H.POD_DELETED,
        {"pod": other(labels=RED)},
        {"pod": other(labels=BLUE)},
    ),
    Case(
        F.INTER_POD_AFFINITY,
        pod(labels=RED),
        H.POD_DELETED,
        {"pod": other(anti_affinity=(term(),))},
        {"pod": other(anti_affinity=(term(namespaces=("elsewhere",)),))},
    ),
    Case(
        F.INTER_POD_AFFINITY,
        AFFINE,
        H.POD_ADDED,
        {"pod": other(labels=RED)},
        {"pod": other(labels=BLUE)},
    ),
    Case(
        F.VOLUME_RESTRICTIONS,
        pod(disks=(Disk("gcePersistentDisk", ("d",)),)),
        H.POD_DELETED,
        {"pod": other(disks=(Disk("gcePersistentDisk", ("d",), True),))},
        {"pod": other(disks=(Disk("iscsi", ("d",)),))},
    ),
    Case(
        F.VOLUME_RESTRICTIONS,
        MOUNTS,
        H.POD_DELETED,
        {"pod": other(volumes=(VolumeUse("data"),))},
        {"pod": other(volumes=(VolumeUse("data"),), namespace="elsewhere")},
    ),
    Case(
        F.VOLUME_RESTRICTIONS,
        pod(volumes=(VolumeUse("other-data"),)),
        H.POD_DELETED,
        {"pod": other(volumes=(VolumeUse("data", ephemeral=True),))},
        {"pod": other("another", volumes=(VolumeUse("data", ephemeral=True),))},
    ),
    Case(
        F.NODE_VOLUME_LIMITS,
        MOUNTS,
        H.POD_DELETED,
        {"pod": other(volumes=(VolumeUse("x"),))},
        {"pod": other()},
    ),
    Case(
        F.NODE_RESOURCES_FIT,
        pod(cpu=1),
        H.POD_SCALED_DOWN,
        {"pod": other(cpu=1), "pod_before": other(cpu=2)},
        {"pod": other(memory=1), "pod_before": other(memory=2)},
    ),
]

LABELS = [
    Case(
        F.POD_TOPOLOGY_SPREAD,
        SPREAD,
        H.POD_LABELS,
        {"pod": other(labels=BLUE), "pod_before": other(labels=RED)},
        {"pod": other(labels=BLUE), "pod_before": other(labels={})},
    ),
    Case(
        F.INTER_POD_AFFINITY,
        AFFINE,
        H.POD_LABELS,
        {"pod": other(labels=RED), "pod_before": other(labels=BLUE)},
        {"pod": other(labels=BLUE), "pod_before": other(labels=RED)},
    ),
    Case(
        F.INTER_POD_AFFINITY,
        AVERSE,
        H.POD_LABELS,
        {"pod": other(labels=BLUE), "pod_before": other(labels=RED)},
        {"pod": other(labels=RED), "pod_before": other(labels=BLUE)},
    ),
    # It is what the affinity asks for before and after, and no longer what the rest forbids.
    Case(
        F.INTER_POD_AFFINITY,
        pod(affinity=(AffinityTerm("zone", (), ("default",)),), anti_affinity=(term(),)),
        H.POD_LABELS,
        {"pod": other(labels=BLUE), "pod_before": other(labels=RED)},
        {"pod": other(labels={**RED, "more": "x"}), "pod_before": other(labels=RED)},
    ),
    Case(
        F.POD_TOPOLOGY_SPREAD,
        replace(SPREAD, labels=(("color", "red"),)),
        H.OWN_LABELS,
        {"pod": replace(SPREAD, labels=(("color", "red"),)), "pod_before": SPREAD},
        {"pod": SPREAD, "pod_before": replace(SPREAD, labels=(("color", "blue"),))},
    ),
    Case(F.INTER_POD_AFFINITY, AFFINE, H.OWN_LABELS, {"pod": AFFINE, "pod_before": AFFINE}),
]

ITSELF = [
    Case(F.TAINT_TOLERATION, pod(), H.OWN_TOLERATIONS, {}),
    Case(F.NODE_UNSCHEDULABLE, pod(tolerations=TOLERANT), H.OWN_TOLERATIONS, {}),
    Case(F.POD_TOPOLOGY_SPREAD, pod(spread=(spread(honor_taints=True),)), H.OWN_TOLERATIONS, {}),
    Case(F.NODE_RESOURCES_FIT, pod(), H.OWN_REQUESTS, {}),
    Case(F.DYNAMIC_RESOURCES, pod(), H.OWN_CLAIM, {}),
]
NOT_ITSELF = [
    Case(F.NODE_UNSCHEDULABLE, pod(tolerations=()), H.OWN_TOLERATIONS, {}),
    Case(
        F.NODE_UNSCHEDULABLE,
        pod(tolerations=(Toleration(UNSCHEDULABLE, "Exists", effect="NoExecute"),)),
        H.OWN_TOLERATIONS,
        {},
    ),
    Case(F.POD_TOPOLOGY_SPREAD, SPREAD, H.OWN_TOLERATIONS, {}),
]

POOL = pod(node_selector={"pool": "gpu"})
NAMED = pod(
    node_affinity=(NodeTerm(fields=(Requirement("metadata.name", Operator.IN, ("n",)),)),),
)

ADDED = [
    *(
        Case(name, pod(), H.NODE_ADDED, {"node": node("n", cpu=0, pods=0)})
        for name in (
            F.NODE_NAME,
            F.NODE_PORTS,
            F.VOLUME_BINDING,
            F.VOLUME_ZONE,
            F.VOLUME_RESTRICTIONS,
            F.DYNAMIC_RESOURCES,
        )
    ),
    Case(
        F.NODE_AFFINITY,
        POOL,
        H.NODE_ADDED,
        {"node": node("n", labels={"pool": "gpu"})},
        {"node": node("n", labels={"pool": "cpu"})},
    ),
    Case(F.NODE_AFFINITY, NAMED, H.NODE_ADDED, {"node": node("n")}, {"node": node("m")}),
    Case(
        F.TAINT_TOLERATION,
        pod(),
        H.NODE_ADDED,
        {"node": node("n", taints=["a:PreferNoSchedule"])},
        {"node": node("n", taints=["a:NoExecute"])},
    ),
    Case(
        F.NODE_UNSCHEDULABLE,
        pod(),
        H.NODE_ADDED,
        {"node": node("n")},
        {"node": node("n", unschedulable=True)},
    ),
    Case(
        F.NODE_RESOURCES_FIT,
        pod(cpu=2, gpus=1),
        H.NODE_ADDED,
        {"node": node("n", cpu=2, gpus=1)},
        {"node": node("n", cpu=2)},
    ),
    # The node has devices for what it does not offer itself.
    Case(
        F.NODE_RESOURCES_FIT,
        DEVICES,
        H.NODE_ADDED,
        {"node": node("n", cpu=2)},
        {"node": node("n", cpu=1)},
    ),
    # It offers some itself, so that no device is asked for.
    Case(
        F.NODE_RESOURCES_FIT,
        pod(extended={BACKED: 2}),
        H.NODE_ADDED,
        {"node": node("n", extended={BACKED: 2})},
        {"node": node("n", extended={BACKED: 1})},
    ),
    Case(
        F.NODE_DECLARED_FEATURES,
        pod(features=("F",)),
        H.NODE_ADDED,
        {"node": node("n", features=frozenset({"F", "G"}))},
        {"node": node("n", features=frozenset({"G"}))},
    ),
    Case(
        F.POD_TOPOLOGY_SPREAD,
        pod(spread=(spread(), spread("rack"))),
        H.NODE_ADDED,
        {"node": node("n", labels={"zone": "a", "rack": "r"})},
        {"node": node("n", labels=ZONED)},
    ),
    Case(
        F.INTER_POD_AFFINITY,
        AFFINE,
        H.NODE_ADDED,
        {"node": node("n", labels=ZONED)},
        {"node": node("n")},
    ),
    Case(F.INTER_POD_AFFINITY, AVERSE, H.NODE_ADDED, {"node": node("n")}),
    # Somebody else's anti-affinity rejected it.
    Case(F.INTER_POD_AFFINITY, pod(labels=RED), H.NODE_ADDED, {"node": node("n")}),
]


def changed(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    return {"node": node("n", **now), "node_before": node("n", **before)}


def relabelled(now: dict[str, str], before: dict[str, str]) -> dict[str, Any]:
    return changed({"labels": now}, {"labels": before})


CHANGED = [
    Case(
        F.NODE_AFFINITY,
        POOL,
        H.NODE_LABELS,
        relabelled({"pool": "gpu"}, {}),
        relabelled({"pool": "gpu", "more": "x"}, {"pool": "gpu"}),
    ),
    *(
        Case(F.POD_TOPOLOGY_SPREAD, SPREAD, H.NODE_LABELS, moves, relabelled({"x": "y"}, {}))
        for moves in (
            relabelled(ZONED, {}),
            relabelled({}, ZONED),
            relabelled({"zone": "b"}, ZONED),
        )
    ),
    Case(F.INTER_POD_AFFINITY, AFFINE, H.NODE_LABELS, relabelled(ZONED, {}), relabelled({}, ZONED)),
    Case(
        F.INTER_POD_AFFINITY,
        AFFINE,
        H.NODE_LABELS,
        relabelled({"zone": "b"}, ZONED),
        relabelled({"x": "y"}, {}),
    ),
    Case(F.INTER_POD_AFFINITY, AVERSE, H.NODE_LABELS, relabelled({}, ZONED)),
    # Anti-affinity counts beside affinity too.
    Case(F.INTER_POD_AFFINITY, BOTH, H.NODE_LABELS, relabelled({}, ZONED), relabelled(ZONED, {})),
    Case(F.INTER_POD_AFFINITY, BOTH, H.NODE_LABELS, relabelled({"zone": "b"}, ZONED)),
    *(
        Case(name, pod(), H.NODE_LABELS, relabelled({"x": "y"}, {}))
        for name in (F.VOLUME_BINDING, F.VOLUME_ZONE, F.DYNAMIC_RESOURCES)
    ),
    Case(
        F.TAINT_TOLERATION,
        pod(),
        H.NODE_TAINTS,
        changed({}, {"taints": ["a:NoSchedule"]}),
        changed({"taints": ["a:NoSchedule"]}, {"taints": ["b:NoSchedule"]}),
    ),
    Case(
        F.NODE_UNSCHEDULABLE,
        pod(),
        H.NODE_TAINTS,
        changed({}, {"unschedulable": True}),
        changed({}, {"taints": ["a:NoSchedule"]}),
    ),
    Case(
        F.POD_TOPOLOGY_SPREAD,
        SPREAD,
        H.NODE_TAINTS,
        changed({"labels": ZONED}, {"labels": ZONED}),
        changed({}, {}),
    ),
    Case(
        F.NODE_RESOURCES_FIT,
        pod(cpu=2),
        H.NODE_ALLOCATABLE,
        changed({"cpu": 3}, {"cpu": 2}),
        changed({"cpu": 3, "memory": 2}, {"cpu": 3, "memory": 1}),
    ),
    Case(
        F.NODE_RESOURCES_FIT,
        pod(cpu=2),
        H.NODE_ALLOCATABLE,
        changed({"pods": 3}, {"pods": 2}),
        changed({"cpu": 1}, {"cpu": 0}),
    ),
    Case(
        F.NODE_RESOURCES_FIT,
        DEVICES,
        H.NODE_ALLOCATABLE,
        changed({"cpu": 2}, {"cpu": 1}),
        changed({"cpu": 1}, {"cpu": 0}),
    ),
    # The plugin that offered devices is gone; the class stands for them from now on.
    Case(
        F.NODE_RESOURCES_FIT,
        DEVICES,
        H.NODE_ALLOCATABLE,
        changed({"cpu": 2}, {"cpu": 2, "extended": {BACKED: 1}}),
    ),
    Case(F.DYNAMIC_RESOURCES, pod(), H.NODE_ALLOCATABLE, changed({}, {})),
    Case(
        F.POD_TOPOLOGY_SPREAD,
        SPREAD,
        H.NODE_DELETED,
        {"node": node("n", labels=ZONED)},
        {"node": node("n")},
    ),
]


def stored(kind: Kind, name: str = "x", namespace: str = "", **facts: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "namespace": namespace, **facts}


OBJECTS = [
    *(
        Case(
            name,
            MOUNTS,
            H.OBJECT,
            stored(Kind.CLAIM, "data", "default"),
            stored(Kind.CLAIM, "data", "elsewhere"),
        )
        for name in (
            F.VOLUME_BINDING,
            F.VOLUME_ZONE,
            F.VOLUME_RESTRICTIONS,
            F.NODE_VOLUME_LIMITS,
        )
    ),
    # The claim of a generic ephemeral volume is the pod's own.
    Case(
        F.VOLUME_BINDING,
        SCRATCH,
        H.OBJECT,
        stored(Kind.CLAIM, "p-scratch", "default"),
        stored(Kind.CLAIM, "scratch", "default"),
    ),
    *(
        Case(F.VOLUME_BINDING, MOUNTS, H.OBJECT, stored(kind), stored(Kind.RESOURCE_SLICE))
        for kind in (
            Kind.VOLUME,
            Kind.STORAGE_CLASS,
            Kind.CSI_NODE,
            Kind.CSI_CAPACITY,
            Kind.ATTACHMENT,
        )
    ),
    Case(
        F.DYNAMIC_RESOURCES,
        pod(claims=(("gpu", "mine"),)),
        H.OBJECT,
        stored(Kind.RESOURCE_CLAIM, "mine", "default"),
        stored(Kind.RESOURCE_CLAIM, "theirs", "default"),
    ),
    Case(
        F.DYNAMIC_RESOURCES,
        pod(claims=(("gpu", "mine"),)),
        H.OBJECT,
        stored(Kind.RESOURCE_CLAIM, "theirs", "elsewhere", freed=True),
        stored(Kind.CLAIM, "mine", "default"),
    ),
    # A resource of which no node had any can be had as a device from now on.
    Case(
        F.NODE_RESOURCES_FIT,
        DEVICES,
        H.OBJECT,
        stored(Kind.DEVICE_CLASS, "gpus"),
        stored(Kind.DEVICE_CLASS, "others"),
    ),
    *(
        Case(F.DYNAMIC_RESOURCES, pod(), H.OBJECT, stored(kind), stored(Kind.VOLUME))
        for kind in (Kind.RESOURCE_SLICE, Kind.DEVICE_CLASS)
    ),
]

EVERYTHING = [*DELETED, *LABELS, *ITSELF, *ADDED, *CHANGED, *OBJECTS]


@pytest.mark.parametrize("case", EVERYTHING, ids=lambda case: f"{case.plugin}-{case.what}")
def test_a_hint_wants_what_may_help_and_nothing_else(case: Case) -> None:
    assert wants(case.plugin, case.waiting, case.what, **case.moves)
    if case.stays is not None:
        assert not wants(case.plugin, case.waiting, case.what, **case.stays)


@pytest.mark.parametrize("case", NOT_ITSELF, ids=lambda case: f"{case.plugin}-{case.what}")
def test_a_change_of_the_pod_itself_that_does_not_help_moves_nobody(case: Case) -> None:
    assert not wants(case.plugin, case.waiting, case.what, **case.moves)


@pytest.mark.parametrize(
    ("what", "facts"),
    [
        (H.POD_DELETED, {"pod": other(labels=BLUE)}),
        (H.POD_ADDED, {"pod": other(labels=BLUE)}),
        (H.POD_LABELS, {"pod": other(labels=BLUE), "pod_before": other(labels=RED)}),
        (H.NODE_ADDED, {"node": node("n")}),
        (H.NODE_LABELS, relabelled({"x": "y"}, {})),
        (H.NODE_DELETED, {"node": node("n")}),
    ],
)
def test_whom_the_profiles_own_constraints_reject_is_woken_by_all_that_may_count(
    what: Happening, facts: dict[str, Any]
) -> None:
    assert wants(F.POD_TOPOLOGY_SPREAD, pod(), what, **facts)


def test_who_asks_for_what_no_class_stands_for_is_not_woken_by_one() -> None:
    assert not wants(F.NODE_RESOURCES_FIT, PLUGGED, H.OBJECT, **stored(Kind.DEVICE_CLASS, "gpus"))
    assert not wants(F.NODE_RESOURCES_FIT, PLUGGED, H.NODE_ADDED, node=node("n", cpu=2))


def test_preemption_itself_never_asks() -> None:
    for what in (H.POD_DELETED, H.NODE_ADDED, H.POD_ADDED):
        facts = {"pod": other(), "node": node("n")}
        assert not wants(DEFAULT_PREEMPTION, pod(cpu=1), what, **facts)


@pytest.mark.parametrize("what", [H.POD_ADDED, H.POD_LABELS])
def test_who_waits_for_room_is_not_woken_by_pods_that_come(what: Happening) -> None:
    facts = {"pod": other(labels=RED), "pod_before": other()}
    for plugin in (F.NODE_RESOURCES_FIT, F.NODE_PORTS, F.TAINT_TOLERATION, F.NODE_AFFINITY):
        assert not wants(plugin, pod(cpu=1), what, **facts)
