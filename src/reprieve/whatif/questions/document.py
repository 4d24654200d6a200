"""An answer as a document: the shape of `-o json`, and its schema.

The schema in `docs/plan.schema.json` is made of these structs; a test compares. A field is never
removed or given another meaning under the same `version`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import format_instant
from kubeworld.units.quantities import quantity_text
from reprieve.engine.diagnosis.estimates import Estimate
from reprieve.engine.diagnosis.model import Blocker, Fix
from reprieve.whatif.questions.answer import Answer, Displaced, Fragile, Outcome, Verdict
from reprieve.whatif.questions.idle_reason import IdleReason
from reprieve.whatif.questions.steps import next_steps
from reprieve.wording.changes import Written, fix_text
from reprieve.wording.displacements import rule_text

__all__ = [
    "VERSION",
    "EstimateDocument",
    "IdleDocument",
    "PlanDocument",
    "estimate_document",
    "idle_document",
    "plan_document",
    "schema",
]

VERSION: Final = "reprieve.dev/plan/v1"


class _Struct(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Common settings: camel case, and nothing that is not described."""


class VictimDocument(_Struct, frozen=True):
    """One that is preempted; `lostDeviceSeconds` is null where its start is not known.

    `plane` chose it by `rule`, and `why` states that in words; `amounts`: its devices by resource.
    `saved`: when it was saved last since it started, empty where it was not. `inTurn`: it is
    preempted for another victim, which waits again. `notifiedAt`: when it would be notified before,
    `evictedBy`: when it is evicted at the latest then; empty without notice. `delaySeconds`: how
    long after the submission it is chosen; 0 where no plane, class or queue has a delay.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    rule: str
    devices: int
    lost_device_seconds: int | None
    plane: str
    why: str
    amounts: dict[str, int]
    saved: str
    in_turn: bool
    notified_at: str
    evicted_by: str
    delay_seconds: int


class PlacementDocument(_Struct, frozen=True):
    """Where a pod runs. Names of pods that a controller makes are made up."""

    pod: str
    node: str


class WrittenDocument(_Struct, frozen=True):
    """A field of a manifest that a change writes; empty for no value."""

    path: str
    before: str
    after: str


class FixDocument(_Struct, frozen=True):
    """A change with which it starts; `victims` are preempted then.

    `field` is of the object that was decided about, a Workload, state; `written` is what the change
    is in the manifest, empty where that is not known. `gain`: `start`, or what alone was tried:
    `quota` without nodes, or `one pod` without the others.
    """

    change: str
    field: str
    before: str
    after: str
    victims: int
    text: str
    written: list[WrittenDocument] = []
    gain: str = "start"


class EstimateDocument(_Struct, frozen=True):
    """When it starts at the latest, if nothing that comes later is before it.

    `basis`: `VictimsLeave`, `ProtectionEnds` or `DeclaredRunTime` (of `holder`, by its `field`), of
    which `notLaterThan` is an instant; `MeasuredWaits`: `quantile` of similar work started within
    `withinSeconds`, with this `confidence`, of so many `cases`. Empty: there is none, and `why`
    states why.
    """

    basis: str
    not_later_than: str
    holder: str
    field: str
    within_seconds: int | None
    quantile: float | None
    confidence: float | None
    cases: int
    why: str


class IdleDocument(_Struct, frozen=True):
    """Why no idle work is preempted: a reason of the idle plane, and its sentence."""

    reason: str
    message: str


class HolderDocument(_Struct, frozen=True):
    """Who holds what it lacks: quantities by resource, and the rule by which it stays."""

    kind: str
    namespace: str
    name: str
    amounts: dict[str, str]
    rule: str


class OutcomeDocument(_Struct, frozen=True):
    """What becomes of one thing submitted; the verdict is null where no plane decides about it.

    `podsWithoutVictims` would start without preemption; null where no work has to be preempted.
    `podsIfFewer`: of pods that start only together, how many would start without if only these were
    submitted; null where that is none.
    `requests`: quantities of all its pods by resource; `missing`: what of that is not free for it,
    so that others are preempted.
    `podsRequested`: of a job that is admitted with fewer pods than it requests; else null.
    `podsOnEmptyCluster` would start on the cluster without any work; null but for what never fits.
    `estimate`: of what waits, and of what starts once others have been preempted;
    `idle`: of what waits where the idle plane decides, too. `holders`: who holds what it lacks;
    where that is places, who has them in the best domain. `podsSubmitted`: how many its manifest
    requests, of which none exist while it waits; `steps`: what to do, tried changes first.
    """

    kind: str
    namespace: str
    name: str
    verdict: Verdict | None
    reason: str
    message: str
    condition_reason: str
    condition_message: str
    queue: str
    cluster_queue: str
    priority: int | None
    pods: int
    placed: int
    pods_requested: int | None
    fixes: list[FixDocument]
    pods_without_victims: int | None
    pods_if_fewer: int | None
    requests: dict[str, str]
    missing: dict[str, str]
    pods_on_empty_cluster: int | None
    estimate: EstimateDocument | None
    idle: IdleDocument | None
    holders: list[HolderDocument]
    pods_submitted: int
    steps: list[str]


class FragileDocument(_Struct, frozen=True):
    """With so much less free it is `verdict`, or another is preempted.

    On a Node, or of a `flavor` of a ClusterQueue. It is the smallest amount that was found, at most
    what one of its pods requests.
    """

    resource: str
    amount: str
    kind: str
    name: str
    flavor: str
    verdict: Verdict | None


class BorrowedDocument(_Struct, frozen=True):
    """What a ClusterQueue uses over its nominal quota afterwards: quantities by resource.

    `reclaimers`: the ClusterQueues that lend it and may reclaim it.
    """

    cluster_queue: str
    amounts: dict[str, str]
    reclaimers: list[str]


class UnseenDocument(_Struct, frozen=True):
    """A kind that could not be listed: in these namespaces, or at all."""

    kind: str
    namespaces: list[str]


class SnapshotDocument(_Struct, frozen=True):
    """What was read, and when; `namespaces` is null where they cannot be listed."""

    at: str
    nodes: int
    pods: int
    namespaces: int | None
    unseen: list[UnseenDocument]


class PlanDocument(_Struct, frozen=True):
    """The answer of `reprieve plan`; the verdict is that of the worst thing submitted.

    `complete` is false where the copy did not come to rest within half an hour of its own time.
    Nothing is ever reserved. `fragile`: null where it is not, or it was not computed. `inVain`: if
    it were submitted the victims would be evicted, and nothing of it would start.
    """

    version: str
    verdict: Verdict | None
    reason: str
    message: str
    submitted: list[OutcomeDocument]
    victims: list[VictimDocument]
    placement: list[PlacementDocument]
    fixes: list[FixDocument]
    snapshot: SnapshotDocument
    controllers: list[str]
    reserved: bool
    complete: bool
    warnings: list[str]
    borrowed: list[BorrowedDocument]
    fragile: FragileDocument | None
    in_vain: bool


def schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of the document."""
    found = msgspec.json.schema(PlanDocument)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": VERSION, **found}


def plan_document(answer: Answer, controllers: Sequence[str]) -> PlanDocument:
    """Return an answer as its document."""
    snapshot = answer.snapshot
    outcomes = [_outcome(each) for each in answer.outcomes]
    return PlanDocument(
        version=VERSION,
        verdict=answer.verdict,
        reason=answer.reason,
        message=answer.message,
        submitted=outcomes,
        victims=[_victim(each) for each in answer.victims],
        placement=[PlacementDocument(each.pod, each.node) for each in answer.placement],
        fixes=[fix for each in outcomes if each.verdict == answer.verdict for fix in each.fixes],
        snapshot=SnapshotDocument(
            format_instant(snapshot.at),
            snapshot.count("nodes"),
            snapshot.count("pods"),
            snapshot.namespaces,
            [
                UnseenDocument(each.resource.qualified, list(each.namespaces))
                for each in snapshot.unseen
            ],
        ),
        controllers=list(controllers),
        reserved=False,
        complete=answer.rest,
        warnings=list(answer.warnings),
        borrowed=[
            BorrowedDocument(each.cluster_queue, _quantities(each.amounts), list(each.reclaimers))
            for each in answer.borrowed
        ],
        fragile=_fragile(answer.fragile),
        in_vain=answer.evicts_in_vain,
    )


def _outcome(outcome: Outcome) -> OutcomeDocument:
    fixes = () if outcome.diagnosis is None else outcome.diagnosis.fixes
    return OutcomeDocument(
        outcome.kind,
        outcome.namespace,
        outcome.name,
        outcome.verdict,
        outcome.reason,
        outcome.message,
        *outcome.condition,
        outcome.queue,
        outcome.cluster_queue,
        outcome.priority,
        outcome.pods,
        outcome.placed,
        outcome.pods_requested,
        [_fix(each, outcome.written.get(each, ())) for each in fixes],
        outcome.pods_without_victims,
        outcome.pods_if_fewer,
        _quantities(outcome.asks.total),
        _quantities(outcome.short),
        outcome.pods_on_empty_cluster,
        estimate_document(outcome.estimate),
        idle_document(outcome.idle),
        [_holder(each) for each in outcome.diagnosis.blockers] if outcome.diagnosis else [],
        max(outcome.pods, outcome.asks.pods, outcome.pods_requested or 0),
        next_steps(outcome, outcome.diagnosis) if outcome.diagnosis else [],
    )


def _holder(blocker: Blocker) -> HolderDocument:
    holder, held = blocker.holder, _quantities(blocker.amounts)
    return HolderDocument(holder.kind, holder.namespace, holder.name, held, blocker.rule)


def estimate_document(estimate: Estimate | None) -> EstimateDocument | None:
    """Return an estimate as its part of a document."""
    if estimate is None:
        return None
    found = estimate.measured
    wait = None if found is None else found.wait
    return EstimateDocument(
        "" if estimate.basis is None else estimate.basis.value,
        "" if estimate.at is None else format_instant(estimate.at),
        estimate.holder,
        estimate.field,
        None if wait is None else -(-wait // SECOND),
        None if found is None or wait is None else found.quantile,
        None if found is None or wait is None else found.confidence,
        0 if found is None else found.cases,
        estimate.why,
    )


def idle_document(idle: IdleReason | None) -> IdleDocument | None:
    """Return why no idle work is preempted as its part of a document."""
    return None if idle is None else IdleDocument(idle.reason.value, idle.text)


def _fragile(found: Fragile | None) -> FragileDocument | None:
    if found is None:
        return None
    amount = quantity_text(found.resource, found.amount)
    return FragileDocument(
        found.resource, amount, found.kind, found.name, found.flavor, found.verdict
    )


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantity_text(name, amount) for name, amount in amounts.items()}


def _fix(fix: Fix, written: Sequence[Written]) -> FixDocument:
    return FixDocument(
        fix.change.value,
        fix.field,
        fix.before,
        fix.after,
        fix.victims,
        fix_text(fix, written),
        [WrittenDocument(each.path, each.before, each.after) for each in written],
        fix.gain.value,
    )


def _victim(victim: Displaced) -> VictimDocument:
    return VictimDocument(
        victim.kind,
        victim.namespace,
        victim.name,
        victim.uid,
        victim.rule,
        victim.devices,
        victim.lost_device_seconds,
        victim.plane,
        rule_text(victim.plane, victim.rule),
        dict(victim.amounts),
        "" if victim.saved is None else format_instant(victim.saved),
        victim.in_turn,
        "" if victim.reported is None else format_instant(victim.reported),
        "" if victim.evicted_by is None else format_instant(victim.evicted_by),
        victim.delay // SECOND,
    )
