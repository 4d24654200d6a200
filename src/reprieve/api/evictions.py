"""`Eviction` (`lifecycle.k8s.io/v1alpha1`): the requested eviction of a pod, as structs.

A controller of the cluster makes one for each target of EvictionRequests, and activates the
responders that the pod names, one after the other. Source: KEP-4563, `k8s.io/api` 1.37.
"""

from __future__ import annotations

from typing import Final

from reprieve.api.core import ObjectMeta, Struct

__all__ = [
    "RESPONDER",
    "Eviction",
    "EvictionSpec",
    "EvictionStatus",
    "PodReference",
    "Requester",
    "Responder",
    "Target",
    "TargetResponder",
]

#: The responder that a pod names in `spec.evictionResponders` to be given its notice.
RESPONDER: Final = "reprieve.dev/notice"


class PodReference(Struct, frozen=True):
    """The pod that is evicted, in the namespace of the Eviction."""

    name: str = ""
    uid: str = ""


class Target(Struct, frozen=True):
    """What is evicted."""

    pod: PodReference = PodReference()


class EvictionSpec(Struct, frozen=True):
    """The request. Immutable."""

    target: Target = Target()


class Requester(Struct, frozen=True):
    """Who requested it; `intent`: `Eviction`, or `Withdrawn`."""

    name: str = ""
    intent: str = ""


class TargetResponder(Struct, frozen=True):
    """Whose turn it is: `state` is Inactive, Active, Interrupted, Canceled or Completed."""

    name: str = ""
    state: str = ""


class Responder(Struct, frozen=True):
    """How far one responder is; instants are RFC 3339 in whole seconds."""

    name: str = ""
    heartbeat_time: str | None = None
    expected_completion_time: str | None = None
    completion_time: str | None = None


class EvictionStatus(Struct, frozen=True):
    """Who requests, and who responds."""

    requesters: list[Requester] | None = None
    target_responders: list[TargetResponder] | None = None
    responders: list[Responder] | None = None


class Eviction(Struct, frozen=True):
    """One eviction."""

    metadata: ObjectMeta = ObjectMeta()
    spec: EvictionSpec = EvictionSpec()
    status: EvictionStatus = EvictionStatus()
    api_version: str = "lifecycle.k8s.io/v1alpha1"
    kind: str = "Eviction"
