"""The intent log: `Preemption` objects in the operator's namespace, one for each plan.

An intent is written before anything is evicted and names its whole victim set. Its name is made of
plane, preemptor uid (or `always`) and attempt, so that creating it twice is harmless: the second
create meets the first. Every change goes by resourceVersion, so that of two processes one fails.
Source: the design's "Intent log and executor", steps 2, 3 and 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from reprieve.api.reprieve import (
    DRY_RUN_LABEL,
    Action,
    Guard,
    IntentPhase,
    Metadata,
    ObjectRef,
    Placement,
    Preemption,
    PreemptionSpec,
    Proof,
    Victim,
    VictimStatus,
)
from reprieve.engine.plan import Plan, Ref
from reprieve.execution.fence import Fence
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, NotFound
from reprieve.kube.resource import PREEMPTIONS
from reprieve.kube.writes import Priority
from reprieve.units.clock import Clock
from reprieve.units.errors import ReprieveError
from reprieve.units.instants import Nanos, format_instant

__all__ = ["IntentLog", "IntentTaken", "intent_name", "intent_spec", "reference"]

_PAGE: Final = 100  # records, each of up to half a megabyte


class IntentTaken(ReprieveError):
    """Another plan stands under this plane, preemptor and attempt: decide again."""


def reference(ref: Ref) -> ObjectRef:
    """Return the engine's reference as the API writes it."""
    return ObjectRef(ref.api_version, ref.kind, ref.name, ref.uid, ref.namespace)


def intent_name(plan: Plan, attempt: int, *, dry_run: bool = False) -> str:
    """Return the object name; a dry run's is made of the plan, so that it is written once."""
    if dry_run:
        return f"{plan.plane}-dry-run-{plan.id}"
    return f"{plan.plane}-{plan.preemptor.uid if plan.preemptor else 'always'}-{attempt}"


def intent_spec(
    plan: Plan,
    attempt: int,
    now: Nanos,
    *,
    actions: Sequence[Action] = (),
    dry_run: bool = False,
    decision_input: dict[str, Any] | None = None,
) -> PreemptionSpec:
    """Return the spec that records `plan`; `actions` are parallel to its victims."""
    chosen = actions or [Action.DELETE] * len(plan.victims)
    return PreemptionSpec(
        plane=plan.plane,
        plan_id=plan.id,
        attempt=attempt,
        proof=Proof(
            level=plan.proof.level,
            compatible=plan.proof.compatible,
            need=dict(plan.proof.need),
            in_flight=dict(plan.proof.in_flight),
            freed=dict(plan.proof.freed),
        ),
        victims=[
            Victim(
                subject=reference(victim.subject),
                root=reference(victim.root),
                amounts=dict(victim.amounts),
                rule=victim.rule,
                reason=victim.reason,
                action=action,
                unit=victim.unit,
            )
            for victim, action in zip(plan.victims, chosen, strict=True)
        ],
        decided_at=format_instant(now),
        preemptor=reference(plan.preemptor) if plan.preemptor else None,
        revision=plan.revision,
        reprieved=dict(plan.reprieved),
        guards=[Guard(reference(guard.subject), list(guard.phases)) for guard in plan.guards],
        placement=[Placement(uid, node) for uid, node in plan.placement],
        dry_run=dry_run,
        input=decision_input,
    )


class IntentLog:
    """Reads and writes the intents of one operator namespace.

    What it returns comes without the input of the decision, which nobody needs here, and which is
    most of a record: thousands of them at once would take more room than all else. Writes of a
    status leave what is stored of it alone.
    """

    def __init__(self, client: Client, namespace: str, fence: Fence, clock: Clock) -> None:
        self._client = client
        self._fence = fence
        self._clock = clock
        self.namespace = namespace

    async def create(self, name: str, spec: PreemptionSpec) -> Preemption:
        """Write the intent `Planned`; one that an earlier try of the same plan wrote is returned.

        Raises:
            Deposed: the fence is closed.
            IntentTaken: another plan has this name, or the same one is over already.
        """
        labels = {DRY_RUN_LABEL: "true"} if spec.dry_run else {}
        intent = Preemption(Metadata(name, self.namespace, labels=labels), spec)
        try:
            writer = self._writer(spec.dry_run)
            return _without_input(await writer.create(PREEMPTIONS, intent, Preemption))
        except AlreadyExists:
            found = _without_input(
                await self._client.get(PREEMPTIONS, self.namespace, name, Preemption)
            )
        if found.spec.plan_id != spec.plan_id or not found.status.phase.open:
            raise IntentTaken(f"preemption {name} stands for plan {found.spec.plan_id}")
        return found

    async def list(self) -> list[Preemption]:
        """Return all intents of the operator namespace by a quorum read."""
        found: list[Preemption] = []
        async for page in self._client.list_pages(
            PREEMPTIONS, Preemption, namespace=self.namespace, page_size=_PAGE
        ):
            found += map(_without_input, page.items)
        return found

    async def start(self, intent: Preemption) -> Preemption:
        """Write `Evicting` with this process and its epoch.

        Raises:
            Deposed: the fence is closed.
            Conflict: somebody else wrote the intent since it was read.
        """
        return await self._write(
            intent,
            phase=IntentPhase.EVICTING,
            owner=self._fence.identity,
            epoch=self._fence.epoch,
            victim_count=len(intent.spec.victims),
            started_at=intent.status.started_at or format_instant(self._clock.wall()),
        )

    async def finish(
        self,
        intent: Preemption,
        phase: IntentPhase,
        reason: str,
        victims: Iterable[VictimStatus],
    ) -> Preemption:
        """Write `Completed` or `Abandoned` with what became of each victim.

        Raises:
            Deposed: the fence is closed.
            Conflict: somebody else wrote the intent since it was read.
        """
        return await self._write(
            intent,
            phase=phase,
            reason=reason,
            victim_count=len(intent.spec.victims),
            victims=list(victims),
            owner=self._fence.identity,
            epoch=self._fence.epoch,
            finished_at=format_instant(self._clock.wall()),
        )

    async def remove(self, intent: Preemption) -> None:
        """Delete the record of a preemption that is over; one that is gone already is fine."""
        try:
            await self._client.at(Priority.STATUS).delete(
                PREEMPTIONS, self.namespace, intent.metadata.name, uid=intent.metadata.uid
            )
        except NotFound:
            return

    async def _write(self, intent: Preemption, **changes: Any) -> Preemption:
        status = msgspec.structs.replace(intent.status, **changes)
        changed = msgspec.structs.replace(_without_input(intent), status=status)
        writer = self._writer(intent.spec.dry_run)
        return _without_input(await writer.update_status(PREEMPTIONS, changed, Preemption))

    def _writer(self, dry_run: bool) -> Client:
        # A dry run evicts nothing, so it needs no lease.
        if dry_run:
            return self._client.at(Priority.INTENT)
        return self._client.at(
            Priority.INTENT, self._fence.check, timeout=self._fence.request_timeout
        )


def _without_input(intent: Preemption) -> Preemption:
    spec = msgspec.structs.replace(intent.spec, input=None)
    return msgspec.structs.replace(intent, spec=spec)
