"""An answer as a document: the shape of `-o json`, and its schema.

The schema in `docs/plan.schema.json` is made of these structs; a test compares. A field is never
taken away or given another meaning under the same `version`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from reprieve.engine.diagnosis.model import Fix
from reprieve.units.instants import format_instant
from reprieve.units.quantities import quantity_text
from reprieve.whatif.answer import Answer, Displaced, Outcome, Verdict
from reprieve.wording.diagnosis import fix_text
from reprieve.wording.displacements import rule_text

__all__ = ["VERSION", "PlanDocument", "plan_document", "schema"]

VERSION: Final = "reprieve.dev/plan/v1"


class _Struct(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Common settings: camel case, and nothing that is not described."""


class VictimDocument(_Struct, frozen=True):
    """One that makes way; `lostDeviceSeconds` is null where its start is not known.

    `plane` chose it by `rule`, and `why` says that in words; `amounts`: its devices by resource.
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


class PlacementDocument(_Struct, frozen=True):
    """Where a pod runs. Names of pods that a controller makes are made up."""

    pod: str
    node: str


class FixDocument(_Struct, frozen=True):
    """A change with which it starts; `victims` make way then."""

    change: str
    field: str
    before: str
    after: str
    victims: int
    text: str


class OutcomeDocument(_Struct, frozen=True):
    """What becomes of one thing submitted; the verdict is null where no plane decides about it.

    `podsWithoutVictims` would start with nobody making way; null where nobody has to.
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
    fixes: list[FixDocument]
    pods_without_victims: int | None


class BorrowedDocument(_Struct, frozen=True):
    """What a ClusterQueue uses over its nominal quota afterwards: quantities by resource."""

    cluster_queue: str
    amounts: dict[str, str]


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
    Nothing is ever reserved.
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
            BorrowedDocument(
                each.cluster_queue,
                {name: quantity_text(name, amount) for name, amount in each.amounts.items()},
            )
            for each in answer.borrowed
        ],
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
        [_fix(each) for each in fixes],
        outcome.pods_without_victims,
    )


def _fix(fix: Fix) -> FixDocument:
    return FixDocument(
        fix.change.value, fix.field, fix.before, fix.after, fix.victims, fix_text(fix)
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
    )
