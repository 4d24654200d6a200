"""`PreemptionNotice`s of a unit: until when it may save, and how many of its pods have.

Where the `Preemption` of the same plan may be read, too, it names who preempts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from reprieve.answers.document import Displaced
from reprieve.answers.preemptions.displacements import LEAVING, is_named
from reprieve.answers.sources import Json, Reading
from reprieve.answers.unit import Unit, namespace_of
from reprieve.api.preemption_notice import PreemptionNotice
from reprieve.kube.resource import PREEMPTION_NOTICES
from reprieve.wording.displacements import NOBODY

__all__ = ["with_notices"]

_OVER: Final = ("Released", "Pardoned")


async def with_notices(
    reading: Reading, unit: Unit, displaced: Sequence[Displaced]
) -> list[Displaced]:
    """Return what is known of how the unit is preempted, with the notices that it has now."""
    listed = await reading.listed((PREEMPTION_NOTICES,), namespace_of(unit.asked), quietly=True)
    by_plan = {each.plan: each for each in displaced}
    for notice in filter(None, map(_read, listed)):
        spec, status = notice.spec, notice.status
        if status.state in _OVER or not is_named(unit, spec.subject):
            continue
        known = by_plan.get(spec.plan_id) or Displaced(
            at=notice.metadata.creation_timestamp,
            plane=spec.plane,
            rule=spec.rule,
            subject=f"{spec.subject.kind} {spec.subject.namespace}/{spec.subject.name}",
            preemptor="" if spec.preemptor == NOBODY else spec.preemptor,
            outcome=LEAVING,
            plan=spec.plan_id,
        )
        by_plan[spec.plan_id] = replace(
            known, saves_until=status.due, saved=status.answered, requested=status.speakers
        )
    return sorted(by_plan.values(), key=lambda each: each.at, reverse=True)


def _read(obj: Json) -> PreemptionNotice | None:
    try:
        return msgspec.convert(obj, PreemptionNotice)
    except msgspec.ValidationError:
        return None
