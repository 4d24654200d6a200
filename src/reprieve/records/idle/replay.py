"""A recorded decision, made again: the plans it gives, and the answer for every candidate.

`decode` trusts nothing: a record may have been cut off, edited, or come from any file.
Source: promises "Deterministic" and "Explained" of the design.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from reprieve.engine.disruptions.questions import BudgetHold
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.flights import in_flight
from reprieve.engine.idle.model import Workload
from reprieve.engine.idle.outcome import Declined, Evaluation
from reprieve.engine.plan import Plan, Victim
from reprieve.records.idle.record import ENCODING, JSON_LIMIT, VERSION, DecisionInput
from reprieve.units.errors import ReprieveError
from reprieve.units.ids import PlanId
from reprieve.units.references import Reference
from reprieve.wording.kaiwo import with_reasons

__all__ = [
    "Answer",
    "InputOmitted",
    "Replay",
    "Role",
    "SpoiltInput",
    "answers",
    "decide_again",
    "decide_input",
    "decode",
    "unpacked",
]

T = TypeVar("T")


class SpoiltInput(ReprieveError):
    """The stored input is not what the operator wrote."""


class InputOmitted(ReprieveError):
    """The decision's input was not stored; the message states why."""


class Role(StrEnum):
    """What a workload was to a decision."""

    VICTIM = "Victim"
    PREEMPTOR = "Preemptor"
    DECLINED = "Declined"  # it got no victims, or stays
    IN_FLIGHT = "InFlight"  # an earlier decision evicts it


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one workload of the input.

    `plan`: of a victim or preemptor. `whom`: for whom a workload is in flight: `namespace/name`, a
    bare name, or empty for no work.
    """

    workload: Workload
    role: Role
    plan: Plan | None = None
    victim: Victim | None = None
    declined: Declined | None = None
    whom: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """A decision made again from its input."""

    decided_on: DecisionInput
    evaluation: Evaluation

    def plan(self, identity: str) -> Plan | None:
        """Return the plan with this id as it is recorded, with the texts of its victims."""
        for plan in self.evaluation.plans:
            if plan.id == PlanId(identity):
                return with_reasons(plan, self.decided_on.snapshot.workloads, self.decided_on.now)
        return None


def decode(recorded: Mapping[str, Any]) -> DecisionInput:
    """Return the input that `record.encode` wrote; raises what `unpacked` does."""
    found = unpacked(recorded, DecisionInput)
    if isinstance(found.spared, msgspec.UnsetType):
        return found
    holds = {
        demand: {
            root: BudgetHold(hold.until, hold.rule, budget)
            if (budget := found.spared.get(demand, {}).get(str(root)))
            else hold
            for root, hold in held.items()
        }
        for demand, held in found.snapshot.holds.items()
    }
    return msgspec.structs.replace(found, snapshot=replace(found.snapshot, holds=holds))


def unpacked(recorded: Mapping[str, Any], form: type[T]) -> T:
    """Return what `record.packed` stored.

    Raises:
        InputOmitted: it was left out when it was recorded.
        SpoiltInput: it is not whole, was changed, or is of a later version.
    """
    version = recorded.get("version")
    if type(version) is not int or version != VERSION:
        raise SpoiltInput(f"spec.input.version is {version!r}; accepted: {VERSION}")
    if "omitted" in recorded:
        raise InputOmitted(f"the input was too large to be stored ({recorded['omitted']})")
    if "unwritten" in recorded:
        raise InputOmitted(f"the input could not be stored: {recorded['unwritten']}")
    if recorded.get("encoding") != ENCODING:
        raise SpoiltInput(
            f"spec.input.encoding is {recorded.get('encoding')!r}; accepted: {ENCODING!r}"
        )
    text = _decompressed(recorded.get("data"))
    digest = hashlib.sha256(text).hexdigest()
    if recorded.get("sha256") != digest:
        raise SpoiltInput("spec.input.data is not what was recorded: its sha256 is another one")
    try:
        return msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        other = f"spec.input.data has another form than version {VERSION}"
        raise SpoiltInput(f"{other}: {error}") from None


def decide_again(recorded: Mapping[str, Any]) -> Replay:
    """Return the decision that the stored input gives.

    Raises:
        InputOmitted: it was left out when it was recorded.
        SpoiltInput: it cannot be read.
    """
    return decide_input(decode(recorded))


def decide_input(decided_on: DecisionInput) -> Replay:
    """Return the decision that an input gives."""
    return Replay(decided_on, evaluate(decided_on.snapshot, decided_on.policy, decided_on.now))


def answers(replay: Replay) -> tuple[Answer, ...]:
    """Return what became of every workload of the input, by namespace/name."""
    victims = {
        victim.subject: (plan, victim)
        for plan in replay.evaluation.plans
        for victim in plan.victims
    }
    preemptors = {plan.preemptor: plan for plan in replay.evaluation.plans if plan.preemptor}
    declined = {each.subject: each for each in replay.evaluation.declined}
    return tuple(
        _answer(workload, replay, victims, preemptors, declined)
        for workload in sorted(replay.decided_on.snapshot.workloads, key=lambda w: w.key)
    )


def _answer(
    workload: Workload,
    replay: Replay,
    victims: Mapping[Reference, tuple[Plan, Victim]],
    preemptors: Mapping[Reference, Plan],
    declined: Mapping[Reference, Declined],
) -> Answer:
    ref, decided_on = workload.ref, replay.decided_on
    if ref in victims:
        plan, victim = victims[ref]
        return Answer(workload, Role.VICTIM, plan, victim)
    if ref in preemptors:
        return Answer(workload, Role.PREEMPTOR, preemptors[ref])
    if ref in declined:
        return Answer(workload, Role.DECLINED, declined=declined[ref])
    whom = in_flight(workload, decided_on.snapshot, decided_on.policy, decided_on.now)
    return Answer(workload, Role.IN_FLIGHT, whom=whom or "")


def _decompressed(data: object) -> bytes:
    if not isinstance(data, str):
        raise SpoiltInput("spec.input.data is missing")
    try:
        compressed = base64.b64decode(data, validate=True)
        # Bounded, because a few bytes can stand for gigabytes.
        stream = zlib.decompressobj()
        text = stream.decompress(compressed, JSON_LIMIT + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise SpoiltInput(f"spec.input.data cannot be unpacked: {error}") from None
    if not stream.eof or stream.unused_data or len(text) > JSON_LIMIT:
        raise SpoiltInput("spec.input.data is cut off, or more than was recorded")
    return text
