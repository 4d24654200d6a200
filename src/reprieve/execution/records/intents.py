"""The intent log: `Preemption` objects in the operator's namespace, one for each plan.

An intent is written before anything is evicted and names its whole victim set (`intent_specs`).
Every change names the resourceVersion, so that of two processes one fails.

A plan that is too large for one object is written in parts (`stored_parts`), the `Preemption` last.
The input of the decision is dropped before a victim is: where its parts cannot be written the plan
is recorded without it. Source: the design's "Intent log and executor", steps 2, 3 and 6.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_instant
from reprieve.api.reprieve import (
    DRY_RUN_LABEL,
    IntentPhase,
    Metadata,
    Preemption,
    PreemptionSpec,
    VictimState,
    VictimStatus,
)
from reprieve.execution.fence import Fence
from reprieve.execution.notices import is_notified
from reprieve.execution.records.read_parts import with_parts
from reprieve.execution.records.stored_parts import StoredParts
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, ApiError, NotFound
from reprieve.kube.resource import PREEMPTIONS
from reprieve.kube.writes import Priority
from reprieve.records.displacements import kept_of
from reprieve.records.plans.parts import SIZES, Sizes, omitted, split
from reprieve.records.victim_states import numbers_by_state
from reprieve.units.errors import ReprieveError

__all__ = ["IntentExists", "IntentLog"]

log: Final = logging.getLogger("reprieve.execution")

_PAGE: Final = 100  # records, of which those of earlier versions have up to half a megabyte each
_MOST_SAVED: Final = 1_000  # of whom the status states what they lost after a save
_LISTED: Final = 200  # victims that stand in the status of a plan in parts
_LONGEST: Final = 256  # letters of what is stated there about one
_AT_ONCE: Final = 8  # records that are being removed


class IntentExists(ReprieveError):
    """Another plan stands under this plane, preemptor and attempt: decide again."""


class IntentLog:
    """Reads and writes the intents of one operator namespace.

    What it returns comes without the input of the decision, which no work needs here, and which is
    most of a record: thousands of them at once would need more memory than all else. Writes of a
    status leave what is stored of it alone.
    """

    def __init__(
        self, client: Client, namespace: str, fence: Fence, clock: Clock, sizes: Sizes = SIZES
    ) -> None:
        self._client = client
        self._fence = fence
        self._clock = clock
        self._sizes = sizes
        self._parts = StoredParts(client, namespace, clock)
        self.namespace = namespace

    async def create(self, name: str, spec: PreemptionSpec) -> Preemption:
        """Write the intent `Planned`; one that an earlier try of the same plan wrote is returned.

        Raises:
            Deposed: the fence is closed.
            IntentExists: another plan has this name, or the same one is over already.
            ApiError: it, or a part of it, cannot be written.
        """
        apart = split(name, self.namespace, spec, self._sizes)
        writer = self._writer(spec.dry_run)
        head = apart.head
        lost = await self._parts.write(writer, apart)
        if lost is not None:
            log.warning("preemption %s is recorded without its input: %s", name, lost)
            head = msgspec.structs.replace(head, input=omitted(str(lost)), input_parts=[])
        labels = {DRY_RUN_LABEL: "true"} if spec.dry_run else {}
        intent = Preemption(Metadata(name, self.namespace, labels=labels), head)
        try:
            stored = await writer.create(PREEMPTIONS, intent, Preemption)
            return _of(stored, msgspec.structs.replace(head, **_contents(spec)))
        except AlreadyExists:
            found = await self._client.get(PREEMPTIONS, self.namespace, name, Preemption)
        if found.spec.plan_id != spec.plan_id or not found.status.phase.open:
            raise IntentExists(f"preemption {name} stands for plan {found.spec.plan_id}")
        return await self.whole(found)

    async def list(self, *, bare: bool = False) -> list[Preemption]:
        """Return all intents of the operator namespace by a quorum read, without their parts.

        `bare`: without whatever there is one of for each victim, for who looks at thousands of
        records.
        """
        found: list[Preemption] = []
        async for page in self._client.list_pages(
            PREEMPTIONS, Preemption, namespace=self.namespace, page_size=_PAGE
        ):
            found += map(_bare if bare else _without_input, page.items)
        return found

    async def current(self, name: str) -> Preemption | None:
        """Return an intent as it is stored now, without its parts, None where it is deleted.

        Raises:
            ApiError: it could not be read.
        """
        with contextlib.suppress(NotFound):
            found = await self._client.get(PREEMPTIONS, self.namespace, name, Preemption)
            return _without_input(found)
        return None

    async def whole(self, intent: Preemption) -> Preemption:
        """Return an intent with its victims; of deleted parts it has none.

        Raises:
            ApiError: a part could not be read.
        """
        return _without_input(await with_parts(self._client, intent))

    async def all_whole(self, intents: Iterable[Preemption]) -> Sequence[Preemption]:
        """Return many intents as `whole` does, some at a time, in the order given.

        Raises:
            ApiError: a part could not be read.
        """
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def read(intent: Preemption) -> Preemption:
            async with at_once:
                return await self.whole(intent)

        return await asyncio.gather(*map(read, intents))

    async def sweep(self, plane: str, heads: Iterable[Preemption]) -> None:
        """Remove parts of a plane that have had no head for a while (`StoredParts.sweep`).

        Raises:
            ApiError: to be tried again.
        """
        await self._parts.sweep(plane, heads)

    async def start(self, intent: Preemption) -> Preemption:
        """Write `Evicting`, or `Noticed` first where victims have notice, with process and epoch.

        Raises:
            Deposed: the fence is closed.
            Conflict: another process wrote the intent since it was read.
        """
        return await self._write(
            intent,
            phase=_begun(intent),
            owner=self._fence.identity,
            epoch=self._fence.epoch,
            victim_count=intent.spec.number_of_victims,
            started_at=intent.status.started_at or format_instant(self._clock.wall()),
        )

    async def go_on(
        self,
        intent: Preemption,
        lost: Mapping[str, int],
        phase: IntentPhase = IntentPhase.EVICTING,
    ) -> Preemption:
        """Write the phase of a plan whose victims had notice before, and what they lose.

        `lost`: device seconds that those lose who have saved, by uid; of more than `_MOST_SAVED`
        the decision's count stays.

        Raises:
            Deposed: the fence is closed.
            Conflict: another process wrote the intent since it was read.
        """
        known = {**intent.status.lost_after_save, **lost}
        kept = dict(islice(known.items(), _MOST_SAVED))
        return await self._write(intent, phase=phase, lost_after_save=kept)

    async def note_answers(
        self, intent: Preemption, until: Mapping[str, str], saved: Iterable[str]
    ) -> Preemption:
        """Write to when deadlines are extended, by the uids of roots, and which pods have saved.

        Raises:
            Deposed: the fence is closed.
            Conflict: another process wrote the intent since it was read.
        """
        known = {**intent.status.extended, **until}
        pods = dict.fromkeys((*intent.status.saved_pods, *saved))
        return await self._write(
            intent,
            phase=IntentPhase.NOTICED,
            extended=dict(islice(known.items(), _MOST_SAVED)),
            saved_pods=list(islice(pods, _MOST_SAVED)),
        )

    async def finish(
        self,
        intent: Preemption,
        phase: IntentPhase,
        reason: str,
        victims: Iterable[VictimStatus],
        *,
        disruptions_pending: bool = False,
    ) -> Preemption:
        """Write `Completed` or `Abandoned` with what became of each victim.

        `disruptions_pending`: not all of its Disruptions are written. For a plan in parts, the
        victims that were not evicted are listed, as far as the object has space; the states of all
        victims are stored there by number, unless parts are missing.

        Raises:
            Deposed: the fence is closed.
            Conflict: another process wrote the intent since it was read.
        """
        states, spec = list(victims), intent.spec
        by_number = spec.parts and len(spec.victims) == spec.number_of_victims
        return await self._write(
            intent,
            phase=phase,
            reason=reason,
            victim_count=spec.number_of_victims,
            victims=_listed(states) if spec.parts else states,
            victims_by_state=dict(Counter(str(each.state) for each in states)),
            numbers_by_state=numbers_by_state(spec.victims, states) if by_number else {},
            owner=self._fence.identity,
            epoch=self._fence.epoch,
            finished_at=format_instant(self._clock.wall()),
            disruptions_pending=disruptions_pending,
        )

    async def remove(self, intent: Preemption) -> None:
        """Delete the record of a preemption that is over; one already deleted is fine."""
        with contextlib.suppress(NotFound):
            await self._client.at(Priority.STATUS).delete(
                PREEMPTIONS, self.namespace, intent.metadata.name, uid=intent.metadata.uid
            )
        await self._parts.remove(intent.spec)

    async def remove_all(self, intents: Iterable[Preemption]) -> None:
        """Delete records of preemptions that are over, some at a time, in the order given.

        One at a time, behind all other writes, fewer might be deleted than are added on a slow API
        server.

        Raises:
            ApiError: one could not be deleted; all others were tried.
        """
        waiting = iter(intents)
        failures: list[ApiError] = []

        async def remove() -> None:
            for intent in waiting:
                try:
                    await self.remove(intent)
                except ApiError as failure:
                    failures.append(failure)

        await asyncio.gather(*(remove() for _ in range(_AT_ONCE)))
        if failures:
            raise failures[0]

    async def _write(self, intent: Preemption, **changes: Any) -> Preemption:
        status = msgspec.structs.replace(intent.status, **changes)
        writer = self._writer(intent.spec.dry_run)
        metadata = intent.metadata
        patch = {"metadata": {"resourceVersion": metadata.resource_version}, "status": status}
        stored = await writer.patch(
            PREEMPTIONS, self.namespace, metadata.name, patch, Preemption, subresource="status"
        )
        return _of(stored, intent.spec)

    def _writer(self, dry_run: bool) -> Client:
        # A dry run evicts nothing, so it needs no lease.
        if dry_run:
            return self._client.at(Priority.INTENT)
        return self._client.at(
            Priority.INTENT, self._fence.check, timeout=self._fence.request_timeout
        )


def _begun(intent: Preemption) -> IntentPhase:
    """Return what a plan is once a process has begun it: notices are given first."""
    phase = intent.status.phase
    reported = phase is IntentPhase.PLANNED and is_notified(intent)
    return IntentPhase.NOTICED if reported or phase is IntentPhase.NOTICED else IntentPhase.EVICTING


def _listed(states: Iterable[VictimStatus]) -> list[VictimStatus]:
    """Return those who were not evicted, as far as a status has space."""
    left = [each for each in states if each.state is not VictimState.EVICTED]
    left = sorted(left, key=lambda each: each.state.over)[:_LISTED]
    return [msgspec.structs.replace(each, message=each.message[:_LONGEST]) for each in left]


def _contents(spec: PreemptionSpec) -> dict[str, Any]:
    return {
        "victims": spec.victims,
        "placement": spec.placement,
        "guards": spec.guards,
        "input": None,
    }


def _of(intent: Preemption, spec: PreemptionSpec) -> Preemption:
    return msgspec.structs.replace(intent, spec=spec)


def _without_input(intent: Preemption) -> Preemption:
    """Leave of the input only what the ledger of disruptions needs."""
    return _of(intent, msgspec.structs.replace(intent.spec, input=kept_of(intent.spec.input)))


def _bare(intent: Preemption) -> Preemption:
    number = intent.spec.number_of_victims
    spec = msgspec.structs.replace(
        intent.spec, victims=[], placement=[], guards=[], input=None, victim_count=number
    )
    status = msgspec.structs.replace(intent.status, victims=[], numbers_by_state={})
    return msgspec.structs.replace(intent, spec=spec, status=status)
