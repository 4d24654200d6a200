"""What a pod's spec states to the scheduler, as values: requests, terms, tolerations, volumes.

Tuples instead of lists and mappings, so that equal specs are equal values and pods made from one
template share one `PodClass`. Source: specification of the scheduling plane, section 21.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

from reprieve.engine.value import value

__all__ = [
    "AffinityTerm",
    "Disk",
    "ExtendedRequest",
    "HostPort",
    "Labels",
    "NodeTerm",
    "Operator",
    "PodClass",
    "Requirement",
    "Selector",
    "SpreadConstraint",
    "Toleration",
    "VolumeUse",
    "Weighted",
]

T = TypeVar("T")

Labels: TypeAlias = tuple[tuple[str, str], ...]  # sorted by key


class Operator(StrEnum):
    """How a requirement compares a label with its values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a selector."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


Selector: TypeAlias = tuple[Requirement, ...] | None  # ANDed; () matches all, None nothing


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Expressions over labels and over fields (`metadata.name`) of a node, all ANDed.

    A term without any matches nothing; one that cannot be read matches nothing either.
    """

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Weighted(Generic[T]):
    """A preferred term and what it weighs (1..100)."""

    weight: int
    term: T


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty operator is `Equal`, an empty key or effect stands for all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that the pod uses; an absent address is `0.0.0.0`, protocol `TCP`."""

    port: int
    protocol: str = "TCP"
    address: str = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint (specification 21.6); the selector includes matchLabelKeys."""

    topology_key: str
    max_skew: int
    hard: bool  # DoNotSchedule
    selector: Selector
    min_domains: int = 1
    honor_affinity: bool = True  # nodeAffinityPolicy
    honor_taints: bool = False  # nodeTaintsPolicy


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A term of pod affinity or anti-affinity (specification 21.7).

    `namespaces` are those listed; intake fills in the pod's own when neither they nor
    `namespace_selector` are given.
    """

    topology_key: str
    selector: Selector
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector = None


@dataclass(frozen=True, slots=True)
class VolumeUse:
    """A PersistentVolumeClaim that the pod mounts, by name in its namespace.

    `ephemeral`: `claim` is the name of a generic ephemeral volume; the claim POD-VOLUME is made for
    the pod (`storage.claim_name`), so that pods of one template have one class.
    """

    claim: str
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """An in-line disk; equal kinds and identities clash unless both are `shared`.

    `kind` is the volume's field name in the API. Identities: gcePersistentDisk (pdName),
    awsElasticBlockStore (volumeID, never shared), iscsi (iqn), rbd one per monitor (monitor, pool,
    image); of other kinds that a CSI driver serves (`storage.MIGRATED`) the first text is the
    handle, and they are always shared. `shared`: read-only.
    """

    kind: str
    identity: tuple[str, ...]
    shared: bool = False


@dataclass(frozen=True, slots=True)
class ExtendedRequest:
    """Devices that containers want as an extended resource, if a DeviceClass stands for it (21.4).

    `name` of the request in the claim that is made for them; `containers` that use its devices.
    """

    resource: str
    name: str
    count: int
    containers: tuple[str, ...] = ()


@value
class PodClass:
    """What a pod's spec states to the scheduler; equal for all pods of one template.

    `requests`: per resource name, without `pods` (21.4), sorted by name. `scored_cpu` and
    `scored_memory`: the requests for scores, with the defaults of 17.2. `unsupported` names a
    feature that no filter here knows; such a pod is not placed, and the name is in its status.
    """

    requests: tuple[tuple[str, int], ...] = ()
    scored_cpu: int = 0
    scored_memory: int = 0
    host_ports: tuple[HostPort, ...] = ()
    node_name: str = ""  # requested by a pod that is not bound yet
    node_selector: Labels = ()
    node_affinity: tuple[NodeTerm, ...] | None = None
    preferred_node_affinity: tuple[Weighted[NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred_affinity: tuple[Weighted[AffinityTerm], ...] = ()
    preferred_anti_affinity: tuple[Weighted[AffinityTerm], ...] = ()
    volumes: tuple[VolumeUse, ...] = ()
    disks: tuple[Disk, ...] = ()
    extended: tuple[ExtendedRequest, ...] = ()  # by name; of extended resources only
    images: tuple[str, ...] = ()  # of containers and init containers, with tag
    features: tuple[str, ...] = ()  # that the node must declare
    scheduler_name: str = "default-scheduler"
    preempts: bool = True  # preemptionPolicy is not Never
    priority_class: str = ""  # by name
    unsupported: str = ""
    # What the pod counts for itself while nodes are scored for it, where that is not `scored_cpu`
    # and `scored_memory`: with pod-level requests, defaults are filled in differently (17.2).
    scored_incoming: tuple[int, int] | None = None

    def __hash__(self) -> int:
        # Only some of the fields in which classes differ: hashing all of them would cost more than
        # everything else about a class, and each node has some classes that are pinned to it.
        return hash(
            (self.requests, self.node_affinity, self.node_selector, self.volumes, self.images)
        )
