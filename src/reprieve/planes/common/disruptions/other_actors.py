"""What others evict, for the ledger of disruptions, in whichever plane runs (`--watch-others`).

Read are two things beside what the scheduling plane sees of pods:

- **Kueue's** Workloads whose condition `Evicted` states `Preempted`, unless the quota plane of this
  process decides, which writes the same. What Kueue states of failed nodes, stopped queues,
  deactivation and of pods that were not ready in time is not a displacement.
- **Events** with the reason `Evict`, as Volcano writes them of pods and of its PodGroups, and KAI
  of its PodGroups. The owner of that work is read from the object while it exists; a PodGroup is
  work of its controller.

Such rows protect their victim and are held against no lineage. Each counts once, from the source
that reports it first; duplicates are rows of the same object, and what happened to a lineage within
one second. What the API server still states of it is known after a restart, too. Tenants may write
events: of a namespace a thousand count within a day, and one that is dated in the future or not at
all counts once. Source: specification of disruptions, section 3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos, instant_or_none
from kubeworld.units.names import DNS_LABEL, DNS_SUBDOMAIN
from kubeworld.units.untrusted import LONGEST_VALUE, shown
from reprieve.api import kueue
from reprieve.api.reprieve import Metadata, ObjectRef
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import KEPT, Actor, Displacement
from reprieve.engine.disruptions.lineage import Identity, Participant, participant_of
from reprieve.intake.lineage import controller_uid, lineage_label, workload_participant
from reprieve.intake.quota_workloads import JOB_UID, condition_of, is_true
from reprieve.kube.each_object import EachObject
from reprieve.kube.errors import ApiError
from reprieve.kube.reader import Reader
from reprieve.kube.reflector import Reflector
from reprieve.kube.resource import EVENTS, PODS, Resource
from reprieve.planes.common.mirrors.mirror import Mirror

__all__ = ["OtherActors"]

log: Final = logging.getLogger("reprieve.disruptions")

_WORKLOADS: Final = Resource(kueue.GROUP, "v1beta2", "workloads", "Workload")
_PREEMPTED: Final = "Preempted"
_EVICT: Final = "Evict"
_GROUPS: Final = ("scheduling.volcano.sh", "scheduling.run.ai")
_WAITING: Final = 10_000
_KNOWN: Final = 100_000
_MOST_OF_NAMESPACE: Final = 1_000  # events that count within a day
_NAMESPACES: Final = 10_000


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    """As much of an Event as states what was evicted when."""

    metadata: Metadata
    involved_object: ObjectRef
    reason: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None


class OtherActors:
    """Follows what others evict. `run` works beside the planes.

    `note` is called with each displacement that counts; `decides`: whether the quota plane of this
    process does, so that what Workloads state is its own doing.
    """

    def __init__(
        self,
        client: Reader,
        mirror: Mirror,
        clock: Clock,
        governor: Governor,
        note: Callable[[Displacement], None],
        decides: Callable[[], bool] = lambda: False,
    ) -> None:
        self.decides = decides
        self._client = client
        self._mirror = mirror
        self._clock = clock
        self._governor = governor
        self._note = note
        self._known: dict[tuple[str, Nanos], None] = {}
        self._events: asyncio.Queue[tuple[_Event, Resource]] = asyncio.Queue(_WAITING)
        # Events that counted by namespace, since the instant at which that was begun anew.
        self._counted: dict[str, int] = {}
        self._counted_since = clock.wall()

    def displaced(self, row: Displacement, once: Nanos | None = None) -> bool:
        """Record a displacement, if it is new; `once`: by when the same object is the same.

        Pods do not come back, so `once` is None for them: the first report of a pod counts.
        """
        key = (row.uid, Nanos(0) if once is None else once)
        if key in self._known or row.at <= self._clock.wall() - KEPT:
            return False
        self._known[key] = None
        while len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]
        self._governor.record(row)
        self._note(row)
        return True

    async def run(self) -> None:
        """Follow until cancelled."""

        def report(trouble: Exception) -> None:
            log.warning("evictions by others are not counted: %s", trouble)

        workloads = self._mirror.follow(
            _WORKLOADS, kueue.Workload, EachObject(self._workload), report=report
        )
        events = Reflector(
            self._client,
            EVENTS,
            _Event,
            EachObject(self._arrived),
            self._clock,
            field_selector=f"reason={_EVICT}",
            report=report,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(workloads.run())
            group.create_task(events.run())
            group.create_task(self._read_events())

    # Kueue.

    def _workload(self, workload: kueue.Workload) -> None:
        evicted = condition_of(workload.status.conditions, "Evicted")
        if evicted is None or not is_true(evicted) or evicted.reason != _PREEMPTED:
            return
        if self.decides():
            return
        metadata = workload.metadata
        references = metadata.owner_references or ()
        owner = next((each.uid for each in references if each.controller), "")
        owner = owner or (metadata.labels or {}).get(JOB_UID, "")
        said = instant_or_none(evicted.last_transition_time) or Nanos(0)
        at = self._instant(said)
        # A protection requests no weak link; without one a late row has nothing folded anew.
        victim = replace(workload_participant(workload, owner, ""), weak="")
        row = Displacement(at, Actor.OTHER, None, victim, metadata.uid)
        if self.displaced(row, said):
            log.info("%s/%s was preempted by Kueue", metadata.namespace, metadata.name)

    # Volcano and KAI.

    def _arrived(self, event: _Event) -> None:
        about = event.involved_object
        if event.reason != _EVICT or about.kind not in ("Pod", "PodGroup"):
            return
        if about.kind == "PodGroup" and about.api_version.partition("/")[0] not in _GROUPS:
            return
        kind = _kind_of(about)
        if kind is None:
            log.info(
                "an event about %s %s is skipped: no object may have that name",
                about.kind,
                shown(about.name),
            )
            return
        if self._events.full():
            self._events.get_nowait()
        self._events.put_nowait((event, kind))

    async def _read_events(self) -> None:
        while True:
            event, kind = await self._events.get()
            about = event.involved_object
            said = instant_or_none(event.last_timestamp or event.event_time or "") or Nanos(0)
            once = Nanos(0) if about.kind == "Pod" else said
            # Before anything is read for it.
            if (about.uid, once) in self._known or not self._has_room(about.namespace):
                continue
            at = self._instant(said)
            row = Displacement(
                at, Actor.OTHER, None, await self._participant(about, kind), about.uid
            )
            if self.displaced(row, once):
                self._count(about.namespace)
                log.info(
                    "%s %s/%s was evicted by another component",
                    about.kind,
                    about.namespace,
                    about.name,
                )

    async def _participant(self, about: ObjectRef, kind: Resource) -> Participant:
        """Return the lineage of an object; of a deleted one it is one of its own."""
        owner = label = ""
        try:
            found: dict[str, Any] = await self._client.get(kind, about.namespace, about.name, dict)
        except ApiError as failure:
            log.info("%s %s/%s: %s", about.kind, about.namespace, about.name, failure)
        else:
            if (found.get("metadata") or {}).get("uid", "") == about.uid:
                owner, label = controller_uid(found), lineage_label(found)
        return participant_of(
            Identity(about.uid, about.namespace, about.namespace, owner, label=label)
        )

    def _has_room(self, namespace: str) -> bool:
        """Whether an event of a namespace counts."""
        now = self._clock.wall()
        if now - self._counted_since >= KEPT:
            self._counted.clear()
            self._counted_since = now
        return self._counted.get(namespace, 0) < _MOST_OF_NAMESPACE

    def _count(self, namespace: str) -> None:
        self._counted[namespace] = self._counted.get(namespace, 0) + 1
        if self._counted[namespace] == _MOST_OF_NAMESPACE:
            log.warning(
                "events on evictions in namespace %s are not counted for up to a day: there "
                "were too many",
                namespace,
            )
        if len(self._counted) > _NAMESPACES:
            del self._counted[next(iter(self._counted))]

    def _instant(self, said: Nanos) -> Nanos:
        """Return when it happened: not later than now, whatever is stated, as tenants write events.

        By a row of the future all others would be too old for the ledger.
        """
        now = self._clock.wall()
        return min(said, now) if said else now


def _kind_of(about: ObjectRef) -> Resource | None:
    """Return which kind an event is about; None where that cannot be there.

    The API server checks no name, version or uid in events: they become addresses, and are kept.
    """
    named = DNS_LABEL.fullmatch(about.namespace) and DNS_SUBDOMAIN.fullmatch(about.name)
    if not named or not 0 < len(about.uid) <= LONGEST_VALUE:
        return None
    if about.kind == "Pod":
        return PODS
    group, _, version = about.api_version.partition("/")
    return (
        Resource(group, version, "podgroups", "PodGroup") if DNS_LABEL.fullmatch(version) else None
    )
