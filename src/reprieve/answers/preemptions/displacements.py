"""Who was preempted for whom, from the `Preemption`s that the caller may read.

They stand in the operator's namespace and name objects by uid. An object that came back under
another uid is found by its name: that of the same object, or one as its controller gives them.
What a victim's tenant may know stands in `reported_disruptions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kubeworld.units.untrusted import Form
from reprieve.answers.document import Displaced
from reprieve.answers.quantities import listed, summed
from reprieve.answers.sources import Json, Reading
from reprieve.answers.unit import Unit, name_of, namespace_of
from reprieve.api.reprieve import (
    IntentPhase,
    ObjectRef,
    Preemption,
    PreemptionPart,
    Victim,
    VictimState,
)
from reprieve.kube.resource import PREEMPTION_PARTS, PREEMPTIONS
from reprieve.records.displacements import kept
from reprieve.records.plans.parts import PartsMissing, joined, left
from reprieve.records.victim_states import victim_states
from reprieve.units.counts import counted
from reprieve.wording.demands import stages_text
from reprieve.wording.displacements import rule_text, withheld_text

__all__ = [
    "LEAVING",
    "concerning",
    "is_named",
    "made_by",
    "of_victim",
    "others_for",
    "records",
    "stands_for",
]

#: The outcome of a victim that has not ended yet.
LEAVING: Final = "leaving"
#: What controllers append to a name, by the letters that Kubernetes makes names of.
_GENERATED: Final = Form(
    r"(?:-[0-9]{1,6}+(?![^-]))?+"
    r"(?:-(?:[a-f0-9]{6,10}+|[bcdfghjklmnpqrstvwxz2456789]{6,10}+)(?![^-]))?+"
    r"(?:-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9]{1,6}+))?+",
    253,
)


#: Kinds of which no pod has its name.
_NOT_MAKERS: Final = ("pod", "podgroup", "workload", "gpuworkload")
#: Ends of the names that Workloads and GpuWorkloads get.
_HASH: Final = Form(r"-[0-9a-f]{5}(?:[0-9a-f]{3})?+")


async def records(reading: Reading, operator_namespace: str) -> list[Preemption]:
    """Return the records that the caller may read, the newest first, with all their victims.

    Without the right to list those of all namespaces, those of the operator's are requested.
    """
    found = await reading.listed((PREEMPTIONS,), "")
    if not found and (PREEMPTIONS.qualified, "") in reading.refused:
        found = await reading.listed((PREEMPTIONS,), operator_namespace)
        if (PREEMPTIONS.qualified, operator_namespace) not in reading.refused:
            del reading.refused[PREEMPTIONS.qualified, ""]
    read = [record for each in found if (record := _record(each)) is not None]
    if any(record.spec.parts for record in read):
        read = _with_parts(read, await reading.listed((PREEMPTION_PARTS,), ""))
    return sorted(read, key=lambda each: (each.spec.decided_at, each.metadata.name), reverse=True)


def concerning(unit: Unit, known: Iterable[Preemption]) -> list[Preemption]:
    """Return the records in which the unit, or what stood in its place, has a part."""
    return [
        record
        for record in known
        if _preempts(unit, record) or any(_is_of(unit, each) for each in record.spec.victims)
    ]


def of_victim(unit: Unit, known: Iterable[Preemption], names: Mapping[str, str]) -> list[Displaced]:
    """Return how the unit, or what stood in its place, was preempted; in the order of the records.

    `names`: of whom objects stand for, by uid.
    """
    return [
        _as_victim(record, mine, names)
        for record in known
        if (mine := [each for each in record.spec.victims if _is_of(unit, each)])
    ]


def others_for(
    unit: Unit, known: Iterable[Preemption], names: Mapping[str, str]
) -> list[Displaced]:
    """Return who was preempted for the unit, the victims of a demand summed; `names` likewise.

    The records of one demand are one row, in the place of the last one.
    """
    mine = {each.metadata.name: each for each in known if _preempts(unit, each)}
    before = {stage.preemption for each in mine.values() for stage in each.spec.stages}
    return [
        _as_preemptor([*_former(record, mine), record], names)
        for name, record in mine.items()
        if name not in before
    ]


def is_named(unit: Unit, ref: ObjectRef) -> bool:
    """Return whether an object is part of the unit, stands for it, or bears the name of a part."""
    return _names(unit, ref)


def _as_victim(record: Preemption, mine: Sequence[Victim], names: Mapping[str, str]) -> Displaced:
    states = victim_states(record)
    outcomes = {state.state for each in mine if (state := states.get(each.root.uid)) is not None}
    preemptor = record.spec.preemptor
    return Displaced(
        at=record.status.started_at or record.spec.decided_at,
        plane=record.spec.plane,
        rule="; ".join(sorted({rule_text(record.spec.plane, each.rule) for each in mine})),
        subject=_subjects(mine, names),
        preemptor="" if preemptor is None else _ref(preemptor, names),
        victims=len(mine),
        amounts=_amounts(mine),
        outcome=_outcome(record, outcomes),
        record=record.metadata.name,
        plan=record.spec.plan_id,
        stages=_stages(record),
        saves_until=_saves_until(record, mine),
        notice_withheld=next(filter(None, (withheld_text(v.notice_withheld) for v in mine)), ""),
    )


def _saves_until(record: Preemption, victims: Iterable[Victim]) -> str:
    """Return the last deadline of victims with notice that may save now, empty for none."""
    if record.status.phase is not IntentPhase.NOTICED:
        return ""
    return max((each.notice.deadline for each in victims if each.notice is not None), default="")


def _stages(record: Preemption) -> str:
    return stages_text((each.plane, each.preemption) for each in record.spec.stages)


def _former(record: Preemption, known: Mapping[str, Preemption]) -> Iterator[Preemption]:
    """Yield the records of the earlier stages of a record's demand, as far as they are known."""
    for stage in record.spec.stages:
        if stage.preemption in known:
            yield known[stage.preemption]


def _as_preemptor(stages: Sequence[Preemption], names: Mapping[str, str]) -> Displaced:
    record = stages[-1]
    # Two records may name one victim, which was evicted once.
    victims = list({v.root.uid: v for each in stages for v in each.spec.victims}.values())
    # What is open is not over because an earlier stage is.
    reported = stages[-1:] if record.status.phase.open else stages
    states = {state.state for each in reported for state in victim_states(each).values()}
    rules = {
        rule_text(each.spec.plane, victim.rule) for each in stages for victim in each.spec.victims
    }
    assert record.spec.preemptor is not None
    return Displaced(
        at=stages[0].status.started_at or stages[0].spec.decided_at,
        plane=record.spec.plane,
        rule="; ".join(sorted(rules)),
        subject=_subjects(victims, names),
        preemptor=_ref(record.spec.preemptor, names),
        victims=len(victims) if stages[1:] else record.spec.number_of_victims,
        amounts=_amounts(victims),
        outcome=_outcome(record, states),
        record=record.metadata.name,
        plan=record.spec.plan_id,
        stages=_stages(record),
        saves_until=_saves_until(record, record.spec.victims),
    )


def _amounts(victims: Sequence[Victim]) -> dict[str, int]:
    """Return what they held together; how many pods they were is stated otherwise."""
    total = summed(each.amounts for each in victims)
    total.pop("pods", None)
    return total


def _outcome(record: Preemption, states: set[VictimState]) -> str:
    if record.spec.dry_run:
        return "dry run: no work was evicted"
    if states & {VictimState.EVICTED, VictimState.GONE}:
        return "evicted" if VictimState.EVICTED in states else "deleted already"
    if VictimState.SPARED in states:
        return "spared"
    if VictimState.FAILED in states:
        return "failed"
    return LEAVING if record.status.phase.open else str(record.status.phase).lower()


def _subjects(victims: Sequence[Victim], known: Mapping[str, str]) -> str:
    """Return who it is: by name up to three of one namespace, else counted."""
    by_space: dict[str, list[str]] = {}
    for each in victims:
        by_space.setdefault(each.subject.namespace, []).append(_ref(each.subject, known))
    names = [name for each in by_space.values() for name in each]
    if len(names) <= 2:
        return listed(names)
    kinds = {each.subject.kind for each in victims}
    what = kinds.pop() if len(kinds) == 1 else "object"
    where = listed(by_space)
    return f"{counted(len(names), what)} in {where}"


def _is_of(unit: Unit, victim: Victim) -> bool:
    return (
        _names(unit, victim.subject)
        or _names(unit, victim.root)
        or (
            unit.asked["kind"] == "PodGroup"
            and victim.unit == f"{namespace_of(unit.asked)}/{name_of(unit.asked)}"
        )
        or (
            victim.root.kind == "Pod"
            and victim.root.namespace == namespace_of(unit.asked)
            and unit.asked["kind"] != "Pod"
            and any(made_by(name_of(each), victim.root.name) for each in _makers(unit))
        )
    )


def _makers(unit: Unit) -> Iterator[Json]:
    for each in (unit.asked, *unit.owners):
        if each["kind"].lower() not in _NOT_MAKERS:
            yield each


def made_by(owner: str, pod: str) -> bool:
    """Return whether a pod has a name as a controller of that name gives."""
    rest = pod.removeprefix(owner)
    return rest != pod and bool(rest) and _GENERATED.fullmatch(rest) is not None


def _names(unit: Unit, ref: ObjectRef) -> bool:
    if ref.uid and ref.uid in unit.uids:
        return True
    return ref.namespace == namespace_of(unit.asked) and any(
        (each["kind"], name_of(each)) == (ref.kind, ref.name)
        or stands_for(ref, each["kind"], name_of(each))
        for each in unit.parts
    )


def stands_for(ref: ObjectRef, kind: str, name: str) -> bool:
    """Return whether a Workload or GpuWorkload has the name that it gets for an object.

    A Workload may stand for one pod of the object alone, as for those of a Deployment.
    """
    if ref.kind not in ("Workload", "GpuWorkload"):
        return False
    lead = f"{kind.lower()}-{name}"
    rest = ref.name.removeprefix(lead)
    if rest != ref.name and _HASH.fullmatch(rest) is not None:
        return True
    of_pod, _, end = ref.name.partition("-")[2].rpartition("-")
    return (
        ref.name.startswith("pod-")
        and kind.lower() not in _NOT_MAKERS
        and _HASH.fullmatch(f"-{end}") is not None
        and made_by(name, of_pod)
    )


def _preempts(unit: Unit, record: Preemption) -> bool:
    return record.spec.preemptor is not None and _names(unit, record.spec.preemptor)


def _ref(ref: ObjectRef, names: Mapping[str, str]) -> str:
    return names.get(ref.uid) or f"{ref.kind} {ref.namespace}/{ref.name}"


def _record(obj: Json) -> Preemption | None:
    """Return a record without the input of its decision, which is most of it."""
    spec = {**obj["spec"], "input": kept(obj["spec"].get("input"))}
    try:
        return msgspec.convert({**obj, "spec": spec}, Preemption)
    except msgspec.ValidationError:
        return None


def _with_parts(known: Sequence[Preemption], parts: Sequence[Json]) -> list[Preemption]:
    by_name: dict[str, PreemptionPart] = {}
    for each in parts:
        try:
            by_name[name_of(each)] = msgspec.convert(each, PreemptionPart)
        except msgspec.ValidationError:
            continue
    complete = []
    for record in known:
        specs = [by_name[name].spec for name in record.spec.parts if name in by_name]
        try:
            spec = joined(record.spec, specs) if record.spec.parts else record.spec
        except PartsMissing:
            spec = left(record.spec, specs)
        complete.append(replace(record, spec=spec))
    return complete
