"""Cases of the filters that no pod changes: evicting helps only on nodes that they let pass.

Their cases are alike: the gang may use node `in` and not node `out`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reprieve.engine.cluster.devices import (
    AllocationMode,
    Device,
    DeviceClassRow,
    DeviceRequest,
    Reach,
    Request,
    ResourceClaimRow,
    ResourceSliceRow,
)
from reprieve.engine.cluster.rows import (
    Change,
    Entry,
    Kind,
    NodeTerm,
    Operator,
    Requirement,
    VolumeUse,
)
from reprieve.engine.cluster.storage import ClaimRow, VolumeRow
from reprieve.engine.placement.profile import FilterName
from reprieve.units.ids import Uid
from tests.engine.builders import node
from tests.scheduling.filters.case import Case, Promise, placed, preemptor

FIT: Final = FilterName.NODE_RESOURCES_FIT


@dataclass(frozen=True)
class Confined:
    """How a filter confines the gang to node `in`.

    `inside`, `outside`: what the nodes have. `spec`: what the members ask for. `others`: further
    objects. `claims`: members have resource claims of their own.
    """

    filter: FilterName
    how: str
    text: str
    inside: Mapping[str, Any] = field(default_factory=dict)
    outside: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[Change, ...] = ()
    claims: bool = False

    def cases(self) -> list[Case]:
        """The four cases."""
        inside, outside = node("in", gpus=8, **self.inside), node("out", gpus=8, **self.outside)
        both = (inside, outside, *self.others)
        full = f"0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 {self.text}."
        return [
            Case(
                self.filter,
                Promise.BLOCKS,
                f"{self.how}; the only node is `out`, whose lower pod uses nothing that it needs.",
                (outside, *self.others, placed("low", "out", gpus=1), self._gang(2)),
                says=f"0/1 nodes are available: 1 {self.text}.",
                kept=("low",),
            ),
            Case(
                self.filter,
                Promise.HELPS,
                f"{self.how}; lower pods fill `in`, and `out` is empty.",
                (*both, placed("a", "in", gpus=4), placed("b", "in", gpus=4), self._gang(2)),
                says=full,
                victims=("a", "b"),
                refused={"a": FIT, "b": FIT},
                nodes=("in", "in"),
            ),
            Case(
                self.filter,
                Promise.REFUSED,
                f"{self.how}; one of two lower pods on `in` is evicted, though `out` is empty: "
                "this filter never changes its answer when a pod returns, so that the capacity of "
                "the only other node decides.",
                (
                    *both,
                    placed("more", "in", priority=2, gpus=4),
                    placed("less", "in", priority=1, gpus=4),
                    self._gang(1),
                ),
                says=full,
                victims=("less",),
                kept=("more",),
                refused={"less": FIT},
                nodes=("in",),
            ),
            Case(
                self.filter,
                Promise.GRANTED,
                f"{self.how}; a lower pod is on each node, and the one on `out` stays untouched.",
                (*both, placed("a", "in", gpus=8), placed("b", "out", gpus=1), self._gang(2)),
                says=full,
                victims=("a",),
                kept=("b",),
                refused={"a": FIT},
                nodes=("in", "in"),
            ),
        ]

    def _gang(self, size: int) -> tuple[Change, ...]:
        facts = [{"claims": (("gpu", f"claim-{i}"),)} for i in range(size)] if self.claims else []
        return preemptor(size, gpus=4, facts=facts, **self.spec)


def _on(name: str) -> NodeTerm:
    return NodeTerm(expressions=(Requirement("kubernetes.io/hostname", Operator.IN, (name,)),))


def entry(kind: Kind, name: str, row: Any, namespace: str = "") -> Entry:
    """The entry of a row that is kept whole."""
    return Entry(kind, row.uid, namespace, name, row.version, row)


def bound_claim(name: str, volume: str = "", **facts: Any) -> tuple[Entry, Entry]:
    """A bound claim and its volume; `labels`, `node_affinity` and `driver` are the volume's."""
    volume = volume or f"volume-{name}"
    mine = {
        key: facts.pop(key)
        for key in ("labels", "node_affinity", "driver", "handle")
        if key in facts
    }
    claim = ClaimRow(
        Uid(f"claim-{name}"), "default", name, 1, volume=volume, bind_completed=True, **facts
    )
    row = VolumeRow(Uid(volume), volume, 1, claim=("default", name, f"claim-{name}"), **mine)
    return entry(Kind.CLAIM, name, claim, "default"), entry(Kind.VOLUME, volume, row)


def _devices() -> tuple[Entry, ...]:
    pool = ResourceSliceRow(
        Uid("slice"),
        "slice",
        1,
        driver="gpu.example.com",
        pool="in",
        reach=Reach(node="in"),
        devices=tuple(Device(f"gpu-{i}") for i in range(2)),
    )
    kind = DeviceClassRow(Uid("class"), "gpu", 1)
    wish = DeviceRequest("one", "gpu", mode=AllocationMode.EXACT_COUNT)
    claims = [
        ResourceClaimRow(
            Uid(f"claim-{i}"), "default", f"claim-{i}", 1, requests=(Request("one", (wish,)),)
        )
        for i in range(2)
    ]
    return (
        entry(Kind.RESOURCE_SLICE, "slice", pool),
        entry(Kind.DEVICE_CLASS, "gpu", kind),
        *(entry(Kind.RESOURCE_CLAIM, each.name, each, "default") for each in claims),
    )


_ZONE: Final = "topology.kubernetes.io/zone"

INDEPENDENT: Final = (
    Confined(
        FilterName.NODE_NAME,
        "The members name the node `in`",
        "node(s) didn't satisfy plugin(s) [NodeName]",
        spec={"node_name": "in"},
    ),
    Confined(
        FilterName.NODE_UNSCHEDULABLE,
        "Node `out` is cordoned",
        "node(s) were unschedulable",
        outside={"unschedulable": True},
    ),
    Confined(
        FilterName.TAINT_TOLERATION,
        "Node `out` has a taint that the members do not tolerate",
        "node(s) had untolerated taint(s)",
        outside={"taints": ["dedicated=other:NoSchedule"]},
    ),
    Confined(
        FilterName.NODE_AFFINITY,
        "The members select a label that only `in` has",
        "node(s) didn't match Pod's node affinity/selector",
        inside={"labels": {"pool": "train"}},
        spec={"node_selector": {"pool": "train"}},
    ),
    Confined(
        FilterName.VOLUME_BINDING,
        "The members mount a volume that can be reached from `in` alone",
        "node(s) didn't match PersistentVolume's node affinity",
        spec={"volumes": (VolumeUse("data"),)},
        others=bound_claim("data", node_affinity=(_on("in"),)),
    ),
    Confined(
        FilterName.VOLUME_ZONE,
        "The members mount a volume of the zone of `in`",
        "node(s) had no available volume zone",
        inside={"labels": {_ZONE: "a"}},
        outside={"labels": {_ZONE: "b"}},
        spec={"volumes": (VolumeUse("data"),)},
        others=bound_claim("data", labels=((_ZONE, "a"),)),
    ),
    Confined(
        FilterName.DYNAMIC_RESOURCES,
        "The members claim devices, and only `in` has any",
        "cannot allocate all claims",
        others=_devices(),
        claims=True,
    ),
    Confined(
        FilterName.NODE_DECLARED_FEATURES,
        "The members need a feature that only `in` declares",
        "node(s) didn't match Pod's required features",
        inside={"features": frozenset(("user-namespaces",))},
        spec={"features": ("user-namespaces",)},
    ),
)
