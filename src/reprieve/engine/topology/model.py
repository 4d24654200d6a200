"""The values of topology-aware assignment: nodes, requests of pod sets, and what they get.

All are immutable and know nothing of the API's objects. Amounts are integers in engine units (cpu
in milli, everything else whole).

Source: specification of topology-aware scheduling, sections 1 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from reprieve.engine.quota.assigning.constraints import NodeExpression, Taint, Toleration

__all__ = [
    "DEFAULT_GATES",
    "HOSTNAME",
    "Domain",
    "Layer",
    "Outcome",
    "PlacedPods",
    "PodsWanted",
    "PreferredTerm",
    "Topology",
    "TopologyAssignment",
    "TopologyGates",
    "TopologyNode",
    "TopologyRequest",
]

#: The label of a node's own level; a topology has it, if at all, as its lowest level.
HOSTNAME: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Topology:
    """The levels of a tree of nodes: labels, from the widest to the narrowest."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopologyNode:
    """A node of the cluster; `allocatable` is by resource, without any usage."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """Slices: groups of `size` pods, each inside one domain of `level`."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """What a pod set requests of a topology; `layers` are from the coarsest slices to the finest.

    `unconstrained` None is a field that was not written. A request with none of the fields requests
    nothing (`explicit` is false).
    """

    required: str = ""
    preferred: str = ""
    unconstrained: bool | None = None
    layers: tuple[Layer, ...] = ()

    @property
    def explicit(self) -> bool:
        """Whether it requests topology-aware scheduling."""
        return bool(self.required or self.preferred or self.layers) or (
            self.unconstrained is not None
        )


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A preferred node affinity: `weight` for nodes that satisfy all `expressions`."""

    weight: int
    expressions: tuple[NodeExpression, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """Pods in one domain: `values` by level, or the host name alone."""

    values: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """Where the pods of one pod set are placed; `domains` in order of their full level values."""

    levels: tuple[str, ...]
    domains: tuple[Domain, ...]

    @property
    def pods(self) -> int:
        """Return how many pods it places."""
        return sum(each.count for each in self.domains)


@dataclass(frozen=True, slots=True)
class PodsWanted:
    """One pod set of a workload, as the assignment reads it.

    `requests` are those of one pod, without the pod itself. `request` None with `implied` is a pod
    set of a queue that has no other flavors. `affinity` are the required node selector terms, of
    which one must hold; None is no affinity. `previous` is what the slice of an elastic job had
    that this one replaces.
    """

    name: str
    count: int
    requests: Mapping[str, int] = field(default_factory=dict)
    request: TopologyRequest | None = None
    implied: bool = False
    group: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[tuple[NodeExpression, ...], ...] | None = None
    preferred: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    previous: TopologyAssignment | None = None


@dataclass(frozen=True, slots=True)
class PlacedPods:
    """A pod set that holds domains: pods per domain, each requesting `requests` and for itself."""

    requests: Mapping[str, int]
    assignment: TopologyAssignment


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pod set got: an assignment, or a reason why it got none."""

    assignment: TopologyAssignment | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TopologyGates:
    """Feature gates that change assignments, with the reference's defaults."""

    profile_mixed: bool = True
    balanced_placement: bool = False
    respect_preferred_affinity: bool = False
    elastic: bool = False
    skip_pod_owned: bool = True
    handle_overlapping: bool = True
    encode_by_prefix: bool = True


DEFAULT_GATES: Final = TopologyGates()
