"""Rows of Evictions, as far as this responder reads them.

Source: KEP-4563, and `docs/notice-drains.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeworld.units.instants import Nanos, format_instant, instant_or_none
from reprieve.api.evictions import RESPONDER, Eviction, Responder
from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    PreemptionStatus,
    Proof,
    Victim,
    VictimNotice,
)
from reprieve.kube.objects import version_number
from reprieve.wording.displacements import EVICTION, requested_by

__all__ = ["Turn", "plan_of", "turn_of"]

_ACTIVE: Final = "Active"
_CANCELED: Final = "Canceled"


@dataclass(frozen=True, slots=True)
class Turn:
    """One Eviction. Instants are nanoseconds since the Unix epoch, 0 where there is none.

    `pod` and `pod_uid`: of its target. `state`: of this responder, empty where it is not named.
    `heard`: its last heartbeat; `promised`: when it stated that it completes; `completed`: when it
    did. `requesters`: those that want the eviction.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    created: str
    pod: str
    pod_uid: str
    state: str
    heard: int
    promised: int
    completed: int
    requesters: tuple[str, ...]

    @property
    def active(self) -> bool:
        """Whether it is the turn of this responder, which has not answered yet."""
        return self.state == _ACTIVE and not self.completed

    @property
    def canceled(self) -> bool:
        """Whether all requests are withdrawn."""
        return self.state == _CANCELED


def turn_of(eviction: Eviction) -> Turn:
    """Return the row of an Eviction."""
    metadata, status, target = eviction.metadata, eviction.status, eviction.spec.target.pod
    turns = status.target_responders or ()
    mine = next((each for each in status.responders or () if each.name == RESPONDER), Responder())
    return Turn(
        metadata.uid,
        metadata.namespace,
        metadata.name,
        version_number(metadata.resource_version),
        metadata.creation_timestamp or "",
        target.name,
        target.uid,
        next((each.state for each in turns if each.name == RESPONDER), ""),
        instant_or_none(mine.heartbeat_time or "") or 0,
        instant_or_none(mine.expected_completion_time or "") or 0,
        instant_or_none(mine.completion_time or "") or 0,
        tuple(each.name for each in status.requesters or () if each.intent == "Eviction"),
    )


def plan_of(turn: Turn, deadline: int, lineage: str) -> Preemption:
    """Return the plan that an Eviction stands for; it is never stored.

    Its names follow from the Eviction alone, so that the next leader reports the same.
    """
    until = format_instant(Nanos(deadline))
    pod = ObjectRef("v1", "Pod", turn.pod, turn.pod_uid, turn.namespace)
    victim = Victim(
        subject=pod,
        root=pod,
        amounts={},
        rule=requested_by(turn.requesters),
        lineage=lineage,
        notice=VictimNotice(until, until),
    )
    eviction = ObjectRef(
        "lifecycle.k8s.io/v1alpha1", "Eviction", turn.name, turn.uid, turn.namespace
    )
    spec = PreemptionSpec(
        plane=EVICTION,
        plan_id=turn.uid,
        attempt=0,
        proof=Proof(level="requested"),
        victims=[victim],
        decided_at=turn.created,
        preemptor=eviction,
    )
    return Preemption(Metadata(f"eviction-{turn.uid}"), spec, PreemptionStatus(IntentPhase.NOTICED))
