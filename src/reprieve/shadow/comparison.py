"""One recorded decision compared with what a candidate decides on the same input.

The input is decided twice by the engine: as it was recorded, which has to give the recorded plan,
and under the candidate. Victims are the same if they are the same objects, in whatever order.
Source: contract of the replay, "Shadow".
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import groupby

import msgspec
from msgspec.structs import replace

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import InvalidInstant, parse_instant
from reprieve.api.reprieve import Preemption, Victim
from reprieve.engine.plan import Plane
from reprieve.engine.plan import Victim as Decided
from reprieve.records.idle.replay import InputOmitted, SpoiltInput, decode, unpacked
from reprieve.records.quota.record import QuotaInput
from reprieve.records.scheduling.record import SchedulingInput
from reprieve.records.scheduling.replay import PluginMissing
from reprieve.shadow.again import Again, Lost, Plugins, idle_again, quota_again, scheduling_again
from reprieve.shadow.candidate import Candidate, NotRecorded

__all__ = ["ChosenVictim", "Comparison", "Verdict", "compared"]


class Verdict(StrEnum):
    """How a decision of the candidate compares to the recorded one."""

    SAME = "Same"  # the same victims; for a sample of the decision log no victims
    OTHER = "OtherVictims"
    NOBODY = "NoVictims"  # the candidate displaces no work for this preemptor
    OMITTED = "InputOmitted"  # the record states that its input was left out
    UNDECIDED = "Undecided"  # it cannot be decided again


class ChosenVictim(msgspec.Struct, frozen=True, rename="camel"):
    """A victim: one object, also where several are evicted together (`unit`)."""

    name: str  # Kind namespace/name
    uid: str
    unit: str
    rule: str
    lost_device_seconds: int


class Comparison(msgspec.Struct, frozen=True, rename="camel"):
    """One record, and what the candidate makes of it.

    `reproduced`: decided as it was recorded it gives the recorded plan. `why`: of one that cannot
    be decided again, or that displaces no work. `program`: the version that recorded it. `stages`:
    the planes that see the demand through, where several decide; `demand`: the first record of the
    demand, which all of its records have in common.
    """

    namespace: str
    name: str
    plane: str
    decided_at: str
    preemptor: str
    dry_run: bool
    verdict: Verdict = Verdict.UNDECIDED
    recorded: tuple[ChosenVictim, ...] = ()
    candidate: tuple[ChosenVictim, ...] = ()
    reproduced: bool = False
    why: str = ""
    program: str = ""
    stages: tuple[str, ...] = ()
    demand: str = ""

    @property
    def decided(self) -> bool:
        """Whether it was decided again."""
        return self.verdict not in (Verdict.OMITTED, Verdict.UNDECIDED)

    @property
    def recorded_lost(self) -> int:
        """Device-seconds that the recorded victims lose."""
        return sum(each.lost_device_seconds for each in self.recorded)

    @property
    def candidate_lost(self) -> int:
        """Device-seconds that those of the candidate would have lost."""
        return sum(each.lost_device_seconds for each in self.candidate)


def compared(record: Preemption, candidate: Candidate, plugins: Plugins) -> Comparison:
    """Return what the candidate makes of a record.

    Raises:
        UsageError: a plugin that a profile enables cannot be loaded.
    """
    spec = record.spec
    preemptor = spec.preemptor
    found = Comparison(
        record.metadata.namespace,
        record.metadata.name,
        spec.plane,
        spec.decided_at,
        "" if preemptor is None else f"{preemptor.kind} {preemptor.namespace}/{preemptor.name}",
        spec.dry_run,
        stages=tuple(plane for plane, _ in groupby(each.plane for each in spec.stages)),
        demand=next(
            (each.preemption for each in spec.stages if each.preemption), record.metadata.name
        ),
    )
    if spec.input is None:
        nothing = spec.revision == 0 and spec.plane == Plane.IDLE
        why = "nothing was decided: it was found in Preempting" if nothing else "it has no input"
        return replace(found, why=why)
    try:
        before, after, program = _decided(record, candidate, plugins)
    except InputOmitted as omitted:
        return replace(found, verdict=Verdict.OMITTED, why=str(omitted))
    except (SpoiltInput, PluginMissing, NotRecorded, InvalidInstant) as failure:
        return replace(found, why=str(failure))
    plan = after.plan
    taken = () if plan is None else _victims(plan.victims, after.lost)
    recorded = _victims(spec.victims, before.lost)
    same = {each.uid for each in taken} == {each.uid for each in recorded}
    return replace(
        found,
        verdict=Verdict.SAME if same else Verdict.NOBODY if plan is None else Verdict.OTHER,
        recorded=recorded,
        candidate=taken,
        reproduced=("" if before.plan is None else before.plan.id) == spec.plan_id,
        why=after.why if plan is None else "",
        program=program,
    )


def _decided(
    record: Preemption, candidate: Candidate, plugins: Plugins
) -> tuple[Again, Again, str]:
    """Return the decision as it was recorded, that of the candidate, and who recorded it."""
    spec = record.spec
    assert spec.input is not None, "queried before"
    if spec.plane == Plane.QUOTA:
        quota = unpacked(spec.input, QuotaInput)
        changed = candidate.of_quota(quota)
        return quota_again(spec, quota), quota_again(spec, changed), quota.program
    if spec.plane == Plane.SCHEDULING:
        placed, at = unpacked(spec.input, SchedulingInput), parse_instant(spec.decided_at) // SECOND
        other = candidate.of_scheduling(placed, at)
        before = scheduling_again(placed, at, plugins)
        return before, scheduling_again(other, at, plugins), placed.program
    idle = decode(spec.input)
    return idle_again(spec, idle), idle_again(spec, candidate.of_idle(idle)), idle.program


def _victims(victims: Iterable[Victim] | Iterable[Decided], lost: Lost) -> tuple[ChosenVictim, ...]:
    return tuple(
        ChosenVictim(
            f"{each.subject.kind} {each.subject.namespace}/{each.subject.name}",
            each.subject.uid,
            each.unit,
            each.rule,
            lost(each.subject.uid),
        )
        for each in victims
    )
