"""The intent log: `Preemption` objects in the operator's namespace, one for each plan.

An intent is written before anything is evicted and names its whole victim set. Its name is made of
plane, preemptor uid (or `always`) and attempt, so that creating it twice is harmless: the second
create meets the first. Every change goes by resourceVersion, so that of two processes one fails.

A plan that is too large for one object is written in parts (`parts`), the `Preemption` last: until
it stands there nothing is acted upon, and what a death leaves of the parts is removed after a
pause. The input of the decision is dropped before a victim is: where its parts cannot be written
the plan is recorded without it. Source: the design's "Intent log and executor", steps 2, 3 and 6.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
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
    PreemptionPart,
    PreemptionSpec,
    Proof,
    Victim,
    VictimState,
    VictimStatus,
)
from reprieve.engine.plan import Plan
from reprieve.execution.at_stake import AtStake, with_stakes
from reprieve.execution.fence import Fence
from reprieve.execution.parts import (
    SIZES,
    PartsMissing,
    Sizes,
    joined,
    left,
    omitted,
    split,
    whole,
)
from reprieve.kube.client import Client
from reprieve.kube.errors import AlreadyExists, ApiError, NotFound
from reprieve.kube.reader import Reader
from reprieve.kube.resource import PREEMPTION_PARTS, PREEMPTIONS
from reprieve.kube.writes import Priority
from reprieve.records.displacements import kept_of
from reprieve.records.victim_states import numbers_by_state
from reprieve.units.clock import Clock
from reprieve.units.durations import MINUTE
from reprieve.units.errors import ReprieveError
from reprieve.units.instants import Nanos, format_instant

__all__ = [
    "IntentLog",
    "IntentTaken",
    "intent_name",
    "intent_spec",
    "stored_whole",
]

log: Final = logging.getLogger("reprieve.execution")

_PAGE: Final = 100  # records, of which those of earlier versions take up to half a megabyte each
_LISTED: Final = 200  # victims that stand in the status of a plan in parts
_LONGEST: Final = 256  # letters of what is said there about one
_ORPHANED: Final = 10 * MINUTE
_AT_ONCE: Final = 8  # records that are being removed
_SWEEP_EVERY: Final = 5 * MINUTE


class IntentTaken(ReprieveError):
    """Another plan stands under this plane, preemptor and attempt: decide again."""


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
    at_stake: AtStake | None = None,
) -> PreemptionSpec:
    """Return the spec that records `plan`; `actions` are parallel to its victims."""
    chosen = actions or [Action.DELETE] * len(plan.victims)
    victims = [
        Victim(
            subject=ObjectRef.of(victim.subject),
            root=ObjectRef.of(victim.root),
            amounts=dict(victim.amounts),
            rule=victim.rule,
            reason=victim.reason,
            action=action,
            unit=victim.unit,
        )
        for victim, action in zip(plan.victims, chosen, strict=True)
    ]
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
            free=dict(plan.proof.free),
        ),
        victims=victims if at_stake is None else with_stakes(victims, at_stake.victims),
        decided_at=format_instant(now),
        preemptor=ObjectRef.of(plan.preemptor) if plan.preemptor else None,
        revision=plan.revision,
        reprieved=dict(plan.reprieved),
        guards=[Guard(ObjectRef.of(guard.subject), list(guard.phases)) for guard in plan.guards],
        placement=[Placement(uid, node) for uid, node in plan.placement],
        dry_run=dry_run,
        input=decision_input,
        preemptor_lineage="" if at_stake is None else at_stake.preemptor,
    )


class _PartHead(msgspec.Struct, frozen=True):
    """A part without its content."""

    metadata: Metadata


class IntentLog:
    """Reads and writes the intents of one operator namespace.

    What it returns comes without the input of the decision, which nobody needs here, and which is
    most of a record: thousands of them at once would take more room than all else. Writes of a
    status leave what is stored of it alone.
    """

    def __init__(
        self, client: Client, namespace: str, fence: Fence, clock: Clock, sizes: Sizes = SIZES
    ) -> None:
        self._client = client
        self._fence = fence
        self._clock = clock
        self._sizes = sizes
        self._orphans: dict[str, int] = {}  # parts without a head, and since when that is seen
        self._swept: int | None = None
        self.namespace = namespace

    async def create(self, name: str, spec: PreemptionSpec) -> Preemption:
        """Write the intent `Planned`; one that an earlier try of the same plan wrote is returned.

        Raises:
            Deposed: the fence is closed.
            IntentTaken: another plan has this name, or the same one is over already.
            ApiError: it, or a part of it, cannot be written.
        """
        apart = split(name, self.namespace, spec, self._sizes)
        writer = self._writer(spec.dry_run)
        head = apart.head
        lost, *_ = await asyncio.gather(
            self._write_inputs(writer, apart.inputs),
            *(self._write_part(writer, part) for part in apart.parts),
        )
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
            raise IntentTaken(f"preemption {name} stands for plan {found.spec.plan_id}")
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
        """Return an intent as it is stored now, without its parts, None where it is gone.

        Raises:
            ApiError: it could not be read.
        """
        with contextlib.suppress(NotFound):
            found = await self._client.get(PREEMPTIONS, self.namespace, name, Preemption)
            return _without_input(found)
        return None

    async def whole(self, intent: Preemption) -> Preemption:
        """Return an intent with its victims; of parts that are gone it has none.

        Raises:
            ApiError: a part could not be read.
        """
        return _without_input(await _with_parts(self._client, intent))

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
        """Remove parts of a plane that have had no head for ten minutes; looks every five minutes.

        `heads`: all intents of the plane.

        Raises:
            ApiError: to be tried again.
        """
        now = self._clock.monotonic()
        if self._swept is not None and now - self._swept < _SWEEP_EVERY:
            return
        self._swept = now
        named = {name for head in heads for name in _names(head.spec)}
        try:
            listed = await self._client.list(
                PREEMPTION_PARTS, _PartHead, namespace=self.namespace, metadata_only=True
            )
        except NotFound:
            return  # the kind is not served: there are none
        before, self._orphans = self._orphans, {}
        for part in listed.items:
            metadata = part.metadata
            if metadata.name in named or not metadata.name.startswith(f"{plane}-"):
                continue
            since = before.get(metadata.uid, now)
            if now - since >= _ORPHANED:
                await self._remove_part(metadata.name, metadata.uid)
            else:
                self._orphans[metadata.uid] = since

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
            victim_count=intent.spec.number_of_victims,
            started_at=intent.status.started_at or format_instant(self._clock.wall()),
        )

    async def finish(
        self,
        intent: Preemption,
        phase: IntentPhase,
        reason: str,
        victims: Iterable[VictimStatus],
        *,
        untold: bool = False,
    ) -> Preemption:
        """Write `Completed` or `Abandoned` with what became of each victim.

        `untold`: not all of its Disruptions are written. Of a plan in parts those are listed that
        were not evicted, as far as there is room; the states of all of them stand there by number,
        unless parts are gone.

        Raises:
            Deposed: the fence is closed.
            Conflict: somebody else wrote the intent since it was read.
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
            untold=untold,
        )

    async def remove(self, intent: Preemption) -> None:
        """Delete the record of a preemption that is over; one that is gone already is fine."""
        with contextlib.suppress(NotFound):
            await self._client.at(Priority.STATUS).delete(
                PREEMPTIONS, self.namespace, intent.metadata.name, uid=intent.metadata.uid
            )
        # Should this fail they are orphans.
        for name in _names(intent.spec):
            await self._remove_part(name)

    async def remove_all(self, intents: Iterable[Preemption]) -> None:
        """Delete records of preemptions that are over, some at a time, in the order given.

        One at a time, behind all other writes, fewer may go than come on a slow API server.

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

    async def _remove_part(self, name: str, uid: str = "") -> None:
        writer = self._client.at(Priority.STATUS)
        with contextlib.suppress(NotFound):
            await writer.delete(PREEMPTION_PARTS, self.namespace, name, uid=uid)

    async def _write_part(self, writer: Client, part: PreemptionPart) -> None:
        try:
            await writer.create(PREEMPTION_PARTS, part, _PartHead)
        except AlreadyExists:
            # Its name says its content: an earlier try, whose answer was lost.
            return

    async def _write_inputs(
        self, writer: Client, parts: Iterable[PreemptionPart]
    ) -> ApiError | None:
        """Write the parts of the input; return why that failed, None where it did not."""
        try:
            for part in parts:
                await self._write_part(writer, part)
        except ApiError as failure:
            return failure
        return None

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


async def stored_whole(reader: Reader, intent: Preemption) -> Preemption:
    """Return an intent as it was decided, with its input, whatever it was stored in.

    Raises:
        PartsMissing: not all of it is there.
        ApiError: a part could not be read.
    """
    parts = await _read_parts(reader, intent, _names(intent.spec))
    return _of(intent, whole(intent.spec, [part.spec for part in parts]))


async def _with_parts(reader: Reader, intent: Preemption) -> Preemption:
    """Return an intent with what there is of its parts; the log says where that is not all."""
    spec = intent.spec
    if not spec.parts or spec.victims:
        return intent
    parts = await _read_parts(reader, intent, spec.parts)
    try:
        return _of(intent, joined(spec, [part.spec for part in parts]))
    except PartsMissing as missing:
        log.error("preemption %s: %s", intent.metadata.name, missing)
    # Numbers count victims from the plan's first, who may be missing.
    status = msgspec.structs.replace(intent.status, numbers_by_state={})
    found = left(spec, [part.spec for part in parts])
    return msgspec.structs.replace(intent, spec=found, status=status)


async def _read_parts(
    reader: Reader, intent: Preemption, names: Iterable[str]
) -> list[PreemptionPart]:
    async def read(name: str) -> PreemptionPart | None:
        namespace = intent.metadata.namespace
        try:
            return await reader.get(PREEMPTION_PARTS, namespace, name, PreemptionPart)
        except NotFound:
            return None

    found = await asyncio.gather(*map(read, names))
    return [part for part in found if part is not None]


def _listed(states: Iterable[VictimStatus]) -> list[VictimStatus]:
    """Return those who were not evicted, as far as there is room in a status."""
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


def _names(spec: PreemptionSpec) -> Sequence[str]:
    return (*spec.parts, *spec.input_parts)


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
