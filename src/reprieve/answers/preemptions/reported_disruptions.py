"""`Disruption`s of a unit: what its tenant may know of how it was preempted.

They are found by the object, and by its lineage: what came back under another uid is the same
work. Where the `Preemption` of the same plan may be read, too, it names who preempted, and the
`Disruption` adds what was lost, how often it happened and what would have spared it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from reprieve.answers.document import Displaced
from reprieve.answers.preemptions.displacements import is_named
from reprieve.answers.sources import Json, Reading
from reprieve.answers.unit import Unit, namespace_of
from reprieve.api.disruption import Disruption
from reprieve.kube.resource import DISRUPTIONS
from reprieve.wording.demands import stages_text
from reprieve.wording.displacements import NOBODY

__all__ = ["completed", "disruptions_of"]


async def disruptions_of(reading: Reading, unit: Unit) -> list[Disruption]:
    """Return the Disruptions of the unit's lineages, the newest first."""
    listed = await reading.listed((DISRUPTIONS,), namespace_of(unit.asked))
    known = [read for each in listed if (read := _read(each)) is not None]
    lines = {f"owner/{uid}" for uid in unit.uids} | {f"object/{uid}" for uid in unit.uids}
    lines |= {each.spec.lineage for each in known if is_named(unit, each.spec.subject)}
    lines.discard("")
    mine = [
        each for each in known if each.spec.lineage in lines or is_named(unit, each.spec.subject)
    ]
    return sorted(mine, key=lambda each: (each.spec.evicting_at, each.metadata.name), reverse=True)


def completed(reported: Sequence[Displaced], found: Iterable[Disruption]) -> list[Displaced]:
    """Return what records state with what Disruptions add, and what these alone state."""
    by_plan = {each.plan: each for each in reported}
    for each in found:
        spec = each.spec
        known = by_plan.get(spec.plan_id) or Displaced(
            at=spec.evicting_at or spec.noticed_at,
            plane=spec.plane,
            rule=spec.rule,
            subject=f"{spec.subject.kind} {spec.subject.namespace}/{spec.subject.name}",
            preemptor="" if spec.preemptor == NOBODY else spec.preemptor,
            victims=spec.objects,
            outcome="evicted",
            plan=spec.plan_id,
        )
        lost = (known.lost_device_seconds or 0) + spec.lost_device_seconds
        by_plan[spec.plan_id] = replace(
            known,
            lost_device_seconds=lost,
            times=max(known.times, spec.times),
            window=spec.window,
            spared_by=spec.spared_by,
            notice_withheld=spec.notice_withheld or known.notice_withheld,
            back_at=max(known.back_at, each.status.back_at),
            stages=known.stages or _stages(each),
        )
    return sorted(by_plan.values(), key=lambda each: each.at, reverse=True)


def _stages(reported: Disruption) -> str:
    demand = reported.spec.demand
    return "" if demand is None else stages_text((plane, "") for plane in demand.stages)


def _read(obj: Json) -> Disruption | None:
    try:
        return msgspec.convert(obj, Disruption)
    except msgspec.ValidationError:
        return None
