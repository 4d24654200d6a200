"""Pods and nodes as the page keeps them: what they hold, where, and since when."""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kubeworld.objects.pods import OVER
from kubeworld.units.instants import Nanos, instant_or_none
from kubeworld.units.quantities import InvalidQuantity
from kubeworld.units.untrusted import cut
from reprieve.api.core import Node, Pod
from reprieve.intake.cluster.metadata import claims_of
from reprieve.intake.cluster.requests import amount_in_base_units, plain_requests
from reprieve.kube.objects import version_number
from reprieve.web.mirror.units import controller_uid, unit_of_pod

__all__ = ["NEVER", "NodeRecord", "PodRecord", "PodState", "node_record", "pod_record"]

#: Labels by which clouds and people name a pool of nodes, the most specific first.
_HOSTNAME: Final = "kubernetes.io/hostname"
_POOLS: Final = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "node.kubernetes.io/instance-type",
)
#: An instant that is not stated.
NEVER: Final = Nanos(0)
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_COUNTED: Final = ("cpu", "memory")
_LONGEST_MESSAGE: Final = 2_000


class PodState(enum.StrEnum):
    """What a pod is at."""

    #: A gate keeps it from being scheduled.
    GATED = "Gated"
    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    LEAVING = "Leaving"
    OVER = "Over"

    @property
    def holds(self) -> bool:
        """Whether its requests are subtracted from its node."""
        return self in (PodState.STARTING, PodState.RUNNING, PodState.LEAVING)

    @property
    def waits(self) -> bool:
        """Whether it is to get a node."""
        return self in (PodState.GATED, PodState.WAITING)


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod.

    Attributes:
        unit: `kind/namespace/name` of the work that it is of.
        controller: uid of its controller, empty without one.
        amounts: what it requests, by resource, without claims (`mirror.claims`); cpu in
            thousandths, others in whole units.
        claims: names of its ResourceClaims and of the templates that they are made of; a claim is
            empty until it is made, a template where there is none.
        since: when it got its node, or was created while it waits.
        nominated: the node that is kept for it.
        message: what the scheduler stated last, while it waits.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    unit: str
    controller: str
    queue: str
    node: str
    nominated: str
    state: PodState
    amounts: tuple[tuple[str, int], ...]
    since: Nanos
    message: str
    claims: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node; `amounts` are allocatable, `labels` all but its own name."""

    uid: str
    namespace: str
    name: str
    resource_version: int
    pool: str
    amounts: Mapping[str, int]
    cordoned: bool
    labels: Mapping[str, str]


def pod_record(pod: Pod) -> PodRecord:
    """Return what is kept of a pod."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    state = _state(pod)
    holds = state is not PodState.OVER
    created = instant_or_none(metadata.creation_timestamp) or NEVER
    amounts = _amounts(plain_requests(spec)) if holds else ()
    message = ""
    if state is PodState.WAITING:
        for each in status.conditions or ():
            if each.type == "PodScheduled" and each.status == "False":
                message = sys.intern(cut(each.message or "", _LONGEST_MESSAGE))
    return PodRecord(
        metadata.uid,
        sys.intern(metadata.namespace),
        metadata.name,
        version_number(metadata.resource_version),
        unit_of_pod(pod),
        sys.intern(controller_uid(metadata)),
        sys.intern((metadata.labels or {}).get(_QUEUE, "")),
        sys.intern(spec.node_name or ""),
        sys.intern(status.nominated_node_name or ""),
        state,
        amounts,
        (instant_or_none(status.start_time) if spec.node_name else None) or created,
        message,
        _claims(pod) if holds and spec.resource_claims else (),
    )


def node_record(node: Node) -> NodeRecord:
    """Return what is kept of a node."""
    labels = node.metadata.labels or {}
    amounts: dict[str, int] = {}
    for name, quantity in (node.status.allocatable or {}).items():
        if _is_counted(name):
            try:
                amounts[sys.intern(name)] = amount_in_base_units(name, quantity)
            except InvalidQuantity:
                continue
    return NodeRecord(
        node.metadata.uid,
        "",
        node.metadata.name,
        version_number(node.metadata.resource_version),
        sys.intern(next((labels[name] for name in _POOLS if labels.get(name)), "")),
        amounts,
        node.spec.unschedulable,
        {sys.intern(k): sys.intern(v) for k, v in labels.items() if k != _HOSTNAME},
    )


def _state(pod: Pod) -> PodState:
    if pod.status.phase in OVER:
        return PodState.OVER
    bound = bool(pod.spec.node_name)
    if pod.metadata.deletion_timestamp:
        return PodState.LEAVING if bound else PodState.OVER
    if bound:
        return PodState.RUNNING if pod.status.phase == "Running" else PodState.STARTING
    gated = any(each.reason == "SchedulingGated" for each in pod.status.conditions or ())
    return PodState.GATED if gated else PodState.WAITING


def _claims(pod: Pod) -> tuple[tuple[str, str], ...]:
    entries = pod.spec.resource_claims
    made = claims_of(entries, pod.status.resource_claim_statuses)
    return tuple(
        dict.fromkeys(
            (name, sys.intern(entry.resource_claim_template_name or ""))
            for entry, (_, name) in zip(entries or (), made, strict=True)
            if name is not None
        )
    )


def _amounts(requests: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return _shape(tuple((name, requests[name]) for name in requests if _is_counted(name)))


@lru_cache(maxsize=10_000)
def _shape(amounts: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return the same object for the same amounts: 50,000 pods request a few dozen things."""
    return amounts


def _is_counted(name: str) -> bool:
    # Extended resources have a domain in their name.
    return name in _COUNTED or ("/" in name and not name.startswith("attachable-volumes"))
