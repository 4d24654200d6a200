"""Who was evicted by which record, be its victims in the record itself or in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from reprieve.api.reprieve import Preemption, PreemptionPart, VictimState
from reprieve.records.plans.parts import joined
from reprieve.records.victim_states import victim_states

__all__ = ["evicted", "together"]

Object = dict[str, Any]


def together(heads: Iterable[Object], parts: Iterable[Object]) -> list[Preemption]:
    """Return the records with their victims; one whose parts are not all there is an error."""
    specs = {part["metadata"]["name"]: msgspec.convert(part, PreemptionPart).spec for part in parts}
    found = []
    for head in heads:
        record = msgspec.convert(head, Preemption)
        if record.spec.parts:
            own = [specs[name] for name in record.spec.parts]
            record = msgspec.structs.replace(record, spec=joined(record.spec, own))
        found.append(record)
    return found


def evicted(records: Iterable[Preemption]) -> Counter[str]:
    """Return in how many records each root's uid stands as evicted."""
    return Counter(
        uid
        for record in records
        for uid, each in victim_states(record).items()
        if each.state is VictimState.EVICTED
    )
