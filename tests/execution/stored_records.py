"""What a record takes as it is stored: an API server's own fields, managed ones too, included."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from reprieve.api.reprieve import Preemption, PreemptionPart, PreemptionSpec
from reprieve.records.plans.parts import whole

Object = dict[str, Any]
MIB = 1024 * 1024
MOST_OF_A_VICTIM = 150


def bounded(head: Object, listed: Iterable[Object]) -> PreemptionSpec:
    """Return the plan of a record in parts; no object of it and no victim takes too much."""
    named = {*head["spec"]["parts"], *head["spec"].get("inputParts", ())}
    parts = [part for part in listed if part["metadata"]["name"] in named]
    assert len(parts) == len(named)
    for each in (head, *parts):
        assert each["metadata"]["managedFields"], "this is no object as it is stored"
        assert len(msgspec.json.encode(each)) <= MIB
    record = msgspec.convert(head, Preemption)
    spec = whole(record.spec, [msgspec.convert(part, PreemptionPart).spec for part in parts])
    with_victims = [part for part in parts if part["metadata"]["name"] in head["spec"]["parts"]]
    placed = sum(len(msgspec.json.encode(each)) for each in spec.placement)
    taken = sum(len(msgspec.json.encode(part)) for part in with_victims) - placed
    assert taken / len(spec.victims) <= MOST_OF_A_VICTIM
    return spec
