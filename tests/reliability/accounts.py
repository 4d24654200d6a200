"""Whether the records of preemptions and the audit log name the same victims, and why not.

A record says who was evicted by it. Under faults the two may differ: a deletion can be carried out
and its answer be lost, and a pod can be gone before anybody finds out whose deletion it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.reliability.audit import Findings

__all__ = ["Accounts", "compare"]

Object = dict[str, Any]


@dataclass
class Accounts:
    """What the records say, and where the log says otherwise.

    `states`: how many victims are in each. `evicted_twice`: uids that are evicted in two records.
    `not_deleted`: why the operator deleted nobody whom a record has as evicted; `not_evicted`: in
    which states those are that it did delete and that no record has as evicted.
    """

    states: Counter[str] = field(default_factory=Counter)
    evicted_twice: list[str] = field(default_factory=list)
    not_deleted: Counter[str] = field(default_factory=Counter)
    not_evicted: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)


def compare(records: Iterable[Object], findings: Findings) -> Accounts:
    """Hold the stored records against what the log says."""
    found = Accounts()
    states: dict[str, list[str]] = {}
    for uid, state in _states(records, findings.parts):
        found.states[state] += state != _OPEN
        states.setdefault(uid, []).append(state)
    for uid, ever in states.items():
        if ever.count("Evicted") > 1:
            found.evicted_twice.append(uid)
        if "Evicted" in ever and uid not in findings.told_to_go:
            why = findings.ended_by.get(uid, "nobody ended it")
            found.not_deleted[why] += 1
            found.examples.setdefault(f"evicted: {why}", []).append(uid)
    for uid in sorted(findings.told_to_go):
        if "Evicted" not in (ever := states.get(uid, [])):
            why = ", ".join(sorted(set(ever))) or "in no record"
            found.not_evicted[why] += 1
            found.examples.setdefault(f"deleted: {why}", []).append(uid)
    return found


_OPEN = "in an open record"


def _states(records: Iterable[Object], parts: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield every victim of the records with its state."""
    for record in records:
        status, spec = record.get("status") or {}, record["spec"]
        listed = {victim["uid"]: victim["state"] for victim in status.get("victims") or ()}
        yield from listed.items()
        # Of what could not be begun nobody was marked; else whoever is not listed was evicted.
        ended = {"Completed": "Evicted", "Abandoned": "Spared"}
        rest = ended.get(status.get("phase", ""), _OPEN)
        of_parts = [uid for part in spec.get("parts") or () for uid in parts.get(part, ())]
        named = [victim["root"]["uid"] for victim in spec.get("victims") or ()]
        told = dict(_by_number(status.get("numbersByState") or {}, of_parts))
        yield from ((uid, told.get(uid, rest)) for uid in of_parts if uid not in listed)
        if rest == _OPEN:
            yield from ((uid, _OPEN) for uid in named if uid not in listed)


def _by_number(states: Mapping[str, str], uids: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the victims of a record in parts with the states that it tells as ranges of numbers."""
    for state, ranges in states.items():
        for each in ranges.split(","):
            first, _, last = each.partition("-")
            yield from ((uid, state) for uid in uids[int(first) : int(last or first) + 1])
