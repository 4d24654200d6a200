"""Why a node refuses a pod: one code per text, whether removing pods may help, and whose it is.

Texts are made in `wording`; a code with a subject (a resource, a claim) names it in the reason.
Source: specification of the scheduling plane, sections 16 and 21.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto
from types import MappingProxyType
from typing import Final

from reprieve.engine.placement.profile import FilterName

__all__ = ["PLUGIN", "RESOLVABLE", "Code", "Reason", "Rejection", "Status"]


class Code(StrEnum):
    """kube-scheduler's status codes."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    ERROR = "Error"


class Rejection(IntEnum):
    """What is wrong with a node; 0 in an array of codes means that the node passes."""

    NODE_NAME = 1
    UNSCHEDULABLE = auto()
    TAINT = auto()
    NODE_AFFINITY = auto()
    ADDED_AFFINITY = auto()
    LEFT_OUT = auto()  # PreFilter narrowed the nodes; subject: names of the plugins
    AFFINITY_CONFLICT = auto()  # matchFields that exclude each other; all nodes
    PORTS = auto()
    RESOURCES = auto()  # in arrays only; reasons name TOO_MANY_PODS and INSUFFICIENT
    RESOURCES_EXCEED_NODE = auto()  # the same, and the node is too small even when empty
    TOO_MANY_PODS = auto()
    INSUFFICIENT = auto()  # subject: the resource
    DISK = auto()
    READ_WRITE_ONCE_POD = auto()
    VOLUME_LIMIT = auto()
    DRIVER_MISSING = auto()  # subject: the driver
    CLAIM_MISSING = auto()  # subject: the claim; this and the next five concern all nodes
    CLAIM_NOT_MADE = auto()  # subject: the claim
    CLAIM_LOST = auto()  # subject: claim and volume, separated by a slash
    CLAIM_DELETED = auto()  # subject: the claim
    CLAIM_UNBOUND = auto()  # subject: the claim, and its class where that does not exist
    VOLUME_AFFINITY = auto()
    NO_VOLUME = auto()
    NO_STORAGE = auto()
    VOLUME_MISSING = auto()
    VOLUME_ZONE = auto()
    SPREAD_LABEL = auto()
    SPREAD_SKEW = auto()
    POD_AFFINITY = auto()
    POD_ANTI_AFFINITY = auto()
    EXISTING_ANTI_AFFINITY = auto()
    DEVICES = auto()  # subject: the full text
    DEVICES_NOT_HERE = auto()  # an allocated claim whose node selector refuses the node
    DEVICES_IN_USE = auto()
    FEATURES = auto()
    UNSUPPORTED = auto()  # subject: the feature that no filter here knows
    PLACEMENT = auto()  # outside the placement that is being examined; never shown
    DEVICES_TAKEN = auto()  # as DEVICES, and removing pods may help (simulateClaims); subject: text


RESOLVABLE: Final = frozenset(
    {
        Rejection.PORTS,
        Rejection.RESOURCES,
        Rejection.TOO_MANY_PODS,
        Rejection.INSUFFICIENT,
        Rejection.DISK,
        Rejection.READ_WRITE_ONCE_POD,
        Rejection.VOLUME_LIMIT,
        Rejection.DRIVER_MISSING,
        Rejection.SPREAD_SKEW,
        Rejection.POD_ANTI_AFFINITY,
        Rejection.EXISTING_ANTI_AFFINITY,
        Rejection.DEVICES_TAKEN,
    }
)

PLUGIN: Final[Mapping[Rejection, FilterName]] = MappingProxyType(
    {
        Rejection.NODE_NAME: FilterName.NODE_NAME,
        Rejection.UNSCHEDULABLE: FilterName.NODE_UNSCHEDULABLE,
        Rejection.TAINT: FilterName.TAINT_TOLERATION,
        Rejection.NODE_AFFINITY: FilterName.NODE_AFFINITY,
        Rejection.ADDED_AFFINITY: FilterName.NODE_AFFINITY,
        Rejection.LEFT_OUT: FilterName.NODE_AFFINITY,
        Rejection.AFFINITY_CONFLICT: FilterName.NODE_AFFINITY,
        Rejection.PORTS: FilterName.NODE_PORTS,
        Rejection.RESOURCES: FilterName.NODE_RESOURCES_FIT,
        Rejection.RESOURCES_EXCEED_NODE: FilterName.NODE_RESOURCES_FIT,
        Rejection.TOO_MANY_PODS: FilterName.NODE_RESOURCES_FIT,
        Rejection.INSUFFICIENT: FilterName.NODE_RESOURCES_FIT,
        Rejection.DISK: FilterName.VOLUME_RESTRICTIONS,
        Rejection.READ_WRITE_ONCE_POD: FilterName.VOLUME_RESTRICTIONS,
        Rejection.VOLUME_LIMIT: FilterName.NODE_VOLUME_LIMITS,
        Rejection.DRIVER_MISSING: FilterName.NODE_VOLUME_LIMITS,
        Rejection.CLAIM_MISSING: FilterName.VOLUME_BINDING,
        Rejection.CLAIM_NOT_MADE: FilterName.VOLUME_BINDING,
        Rejection.CLAIM_LOST: FilterName.VOLUME_BINDING,
        Rejection.CLAIM_DELETED: FilterName.VOLUME_BINDING,
        Rejection.CLAIM_UNBOUND: FilterName.VOLUME_BINDING,
        Rejection.VOLUME_AFFINITY: FilterName.VOLUME_BINDING,
        Rejection.NO_VOLUME: FilterName.VOLUME_BINDING,
        Rejection.NO_STORAGE: FilterName.VOLUME_BINDING,
        Rejection.VOLUME_MISSING: FilterName.VOLUME_BINDING,
        Rejection.VOLUME_ZONE: FilterName.VOLUME_ZONE,
        Rejection.SPREAD_LABEL: FilterName.POD_TOPOLOGY_SPREAD,
        Rejection.SPREAD_SKEW: FilterName.POD_TOPOLOGY_SPREAD,
        Rejection.POD_AFFINITY: FilterName.INTER_POD_AFFINITY,
        Rejection.POD_ANTI_AFFINITY: FilterName.INTER_POD_AFFINITY,
        Rejection.EXISTING_ANTI_AFFINITY: FilterName.INTER_POD_AFFINITY,
        Rejection.DEVICES: FilterName.DYNAMIC_RESOURCES,
        Rejection.DEVICES_NOT_HERE: FilterName.DYNAMIC_RESOURCES,
        Rejection.DEVICES_IN_USE: FilterName.DYNAMIC_RESOURCES,
        Rejection.DEVICES_TAKEN: FilterName.DYNAMIC_RESOURCES,
        Rejection.FEATURES: FilterName.NODE_DECLARED_FEATURES,
    }
)


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, with the name that its text contains."""

    rejection: Rejection
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """What a filter run states about one node, or about all of them."""

    code: Code
    reasons: tuple[Reason, ...] = ()
