"""The page of one preemption: what was needed and used, the victims, the reprieved, the proof.

Parameter `name`: of the record, or its plan's id. Values: `address`, `record`, `plan`, `plane`,
`attempt`, `dryRun`, `state`, `reason`, `decided`, `started`, `finished`, `preemptor`, `need`,
`reprieved`, `proof`, `again`, `totals`, `command`. Tables: `victims`, `spared`, `sums`, `amounts`,
`placement`.

Every figure is the record's, or of the same decision made again (`records.judgement`). Work that
the viewer may not see is masked (`records.masking`); spared work of this kind is reported in totals
alone, and only where three tenants or more have a part in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.answers.quantities import listed
from reprieve.api.reprieve import Preemption, Proof
from reprieve.engine.lost_work import devices_of
from reprieve.engine.placement.profile import VictimChoice
from reprieve.engine.plan import Plane
from reprieve.records.idle.story import level_text
from reprieve.settings.start_up import DEFAULT_NAMESPACE
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.reported import DisruptionRecord, PreemptionRecord
from reprieve.web.pages.asked import one, whole
from reprieve.web.records.called import masking_of
from reprieve.web.records.judged import Again, Candidate, Fate, Judgement
from reprieve.web.records.masking import Masking, address_of, is_visible
from reprieve.web.records.reported_disruptions import rows_of_disruptions, values_of_disruptions
from reprieve.web.records.victims import VictimUnit, need_of, victim_units
from reprieve.web.tables import (
    Cell,
    Column,
    Kind,
    NotFound,
    Page,
    Parameters,
    Table,
    Viewer,
    seconds,
)
from reprieve.wording.demands import proof_text, rejection_text
from reprieve.wording.displacements import rule_text

__all__ = ["page"]

#: Most units that are reported one by one; the sums count all.
MOST_UNITS: Final = 500
_MOST_SPARED: Final = 200
_MOST_SUMS: Final = 200
_MOST_PLACES: Final = 200
_TENANTS: Final = 3  # totals over fewer would disclose the figures of one tenant

_VICTIMS: Final = (
    Column("unit", Kind.UNIT),
    Column("objects", Kind.NUMBER),
    Column("gpus", Kind.NUMBER),
    Column("rule", Kind.TEXT),
    Column("why", Kind.TEXT),
    Column("lost", Kind.NUMBER),
    Column("state", Kind.WORD),
    Column("since", Kind.INSTANT),
    Column("message", Kind.TEXT),
    Column("node", Kind.TEXT),
    Column("place", Kind.NUMBER),
)
_SPARED: Final = (
    Column("unit", Kind.UNIT),
    Column("objects", Kind.NUMBER),
    Column("gpus", Kind.NUMBER),
    Column("fate", Kind.WORD),
    Column("why", Kind.TEXT),
    Column("place", Kind.NUMBER),
    Column("priority", Kind.NUMBER),
    Column("queue", Kind.TEXT),
    Column("lost", Kind.NUMBER),
    Column("node", Kind.TEXT),
)
_SUMS: Final = (
    Column("pool", Kind.TEXT),
    Column("namespace", Kind.TEXT),
    Column("group", Kind.TEXT),
    Column("rule", Kind.TEXT),
    Column("state", Kind.WORD),
    Column("units", Kind.NUMBER),
    Column("objects", Kind.NUMBER),
    Column("gpus", Kind.NUMBER),
    Column("lost", Kind.NUMBER),
)
_AMOUNTS: Final = (
    Column("resource", Kind.TEXT),
    Column("needed", Kind.NUMBER),
    Column("free", Kind.NUMBER),
    Column("inFlight", Kind.NUMBER),
    Column("freed", Kind.NUMBER),
)
_PLACEMENT: Final = (Column("node", Kind.TEXT), Column("pods", Kind.NUMBER))
_TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "victims": _VICTIMS,
    "spared": _SPARED,
    "sums": _SUMS,
    "amounts": _AMOUNTS,
    "placement": _PLACEMENT,
}


@dataclass(frozen=True, slots=True)
class _Story:
    """One record, as it is shown to one viewer."""

    record: Preemption
    units: list[VictimUnit]
    judgement: Judgement | None
    viewer: Viewer
    masking: Masking
    candidates: Mapping[str, Candidate]  # by uid

    def sees(self, unit: VictimUnit) -> bool:
        return self.viewer.sees(unit.namespace)


def page(mirror: Mirror, viewer: Viewer, parameters: Parameters, at: Nanos) -> Page:
    """Return one preemption.

    Raises:
        NotFound: there is none of that name, or none that the viewer may know of.
        InvalidParameter: as of `one`.
    """
    name = one(parameters, "name")
    reported = [
        each
        for each in mirror.disruptions
        if each.plan_id == name and name and viewer.sees(each.namespace)
    ]
    head = _found(mirror, viewer, name, reported)
    if head is None:
        if not reported:
            raise NotFound(f"no preemption {name!r}")
        tables = {name: Table(columns) for name, columns in _TABLES.items()}
        tables["victims"] = Table(_VICTIMS, rows_of_disruptions(reported))
        return Page(values_of_disruptions(reported), tables)
    story = _story_of(mirror, viewer, head)
    return Page(
        {**_values(story, reported), **_decision(story)},
        {
            name: Table(_TABLES[name], dict(rows))
            for name, rows in (
                ("victims", _victim_rows(story)),
                ("spared", _spared(story, mirror)),
                ("sums", _sums(story)),
                ("amounts", _amounts(story.record)),
                ("placement", _placement(story)),
            )
        },
    )


def _found(
    mirror: Mirror, viewer: Viewer, name: str, reported: list[DisruptionRecord]
) -> PreemptionRecord | None:
    """Return the record; by its name for who may know that, else the last of that plan's id."""
    known = [
        each
        for each in mirror.preemptions
        if name in (each.plan_id, address_of(each.record, viewer))
        # Of a plan in parts a Disruption alone states who had a part in it.
        and (reported or is_visible(each.record, viewer))
    ]
    return max(known, key=lambda each: each.decided, default=None)


def _story_of(mirror: Mirror, viewer: Viewer, head: PreemptionRecord) -> _Story:
    opened = mirror.opened.whole(head.namespace, head.name, head.uid)
    record = head.record if opened is None else replace(head.record, spec=opened.spec)
    judgement = None if opened is None else opened.judgement
    masking = masking_of(mirror, viewer, record)
    candidates = {} if judgement is None else {each.uid: each for each in judgement.candidates}
    return _Story(record, victim_units(record), judgement, viewer, masking, candidates)


def _values(story: _Story, reported: list[DisruptionRecord]) -> dict[str, Any]:
    """Return what the record states of itself, and in how many words for whom."""
    record, viewer = story.record, story.viewer
    spec, status, metadata = record.spec, record.status, record.metadata
    address = address_of(record, viewer)
    known = address == metadata.name
    said = next((each.disruption.spec.preemptor for each in reported), "")
    preemptor = story.masking.preemptor(record, said)
    where = "" if metadata.namespace == DEFAULT_NAMESPACE else f" -n {metadata.namespace}"
    return {
        "address": address,
        "record": metadata.name if known else None,
        "plan": spec.plan_id,
        "plane": spec.plane,
        "attempt": spec.attempt,
        "dryRun": spec.dry_run,
        "state": status.phase.value,
        # It may name objects of others.
        "reason": status.reason if viewer.sees_all else "",
        "decided": seconds(instant_or_none(spec.decided_at)),
        "started": seconds(instant_or_none(status.started_at)),
        "finished": seconds(instant_or_none(status.finished_at)),
        "preemptor": preemptor.text,
        "command": f"reprieve explain preemption/{metadata.name}{where}" if known else "",
        "totals": _totals(story),
        "demand": _demand(story),
    }


def _demand(story: _Story) -> dict[str, Any] | None:
    """Return the text about the demand; None where one plane decides alone."""
    spec = story.record.spec
    if not spec.stages:
        return None
    # The name of a record has the preemptor's uid.
    known = address_of(story.record, story.viewer) == story.record.metadata.name
    return {
        "stages": [
            {"plane": each.plane, "preemption": each.preemption if known else ""}
            for each in spec.stages
        ],
        "proof": proof_text(spec),
        "rejected": [
            {"plane": each.plane, "text": rejection_text(each.reason)} for each in spec.rejected
        ],
        "depth": spec.depth,
    }


def _totals(story: _Story) -> dict[str, Any]:
    record, units = story.record, story.units
    known = [unit.lost for unit in units if unit.lost is not None]
    states = Counter(unit.state.value for unit in units)
    complete = not record.spec.parts or bool(units)
    return {
        "objects": record.spec.number_of_victims,
        "units": len(units),
        "shown": min(len(units), MOST_UNITS),
        "gpus": sum(unit.devices for unit in units) if complete else None,
        "lost": sum(known) if known else None,
        "states": dict(sorted(states.items())),
        "complete": complete,
    }


def _decision(story: _Story) -> dict[str, Any]:
    """Return what was needed, what was proven, and the result of deciding again."""
    spec, judgement = story.record.spec, story.judgement
    need = need_of(spec.plane, spec.proof)
    again = Again.PENDING if judgement is None else judgement.again
    upheld = None
    if judgement is not None and judgement.proven:
        upheld = not judgement.faults
    said = "" if judgement is None or not story.viewer.sees_all else judgement.text
    return {
        "need": None
        if need is None
        else {
            "resource": need.resource,
            "needed": whole(need.resource, need.needed),
            "free": whole(need.resource, need.free),
            "coming": whole(need.resource, need.coming),
            "lacking": whole(need.resource, need.lacking),
            "freed": whole(need.resource, need.used),
            "exact": need.exact,
            "countedAgain": _reprieved(story),
        },
        "reprieved": dict(sorted(spec.reprieved.items())),
        "proof": {
            "level": spec.proof.level.lower(),
            "text": level_text(spec.proof.level),
            # Compatible rules may evict more than is needed, and Exempt serves no preemptor.
            "irreducible": None if need is None else not spec.proof.compatible,
            "upheld": upheld,
            **_choice(spec.proof),
        },
        "again": {"state": again.value, "text": said},
    }


def _choice(proof: Proof) -> dict[str, Any]:
    """Return which profile chose the victims, and its bound; older records do not state one."""
    if proof.profile == VictimChoice.BEST:
        return {"profile": proof.profile, "gap": proof.gap}
    return {"profile": proof.profile} if proof.profile else {}


def _reprieved(story: _Story) -> int | None:
    """Return how many were reprieved; what the record does not count is counted again."""
    reprieved = story.record.spec.reprieved
    if reprieved or story.record.spec.plane != Plane.QUOTA:
        return sum(reprieved.values())
    judgement = story.judgement
    return None if judgement is None else judgement.number_of(Fate.REPRIEVED)


def _victim_rows(story: _Story) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield the units that are preempted, those that the viewer sees first."""
    seen = sorted(story.units, key=lambda unit: not story.sees(unit))
    for number, unit in enumerate(seen[:MOST_UNITS]):
        shown = story.masking.shown(unit.root, unit.lineage, _better(story, unit))
        mine = story.sees(unit)
        candidate = story.candidates.get(unit.subject.uid)
        plane = story.record.spec.plane
        yield (
            f"{number}/{shown.text}",
            (
                shown.text,
                len(unit.roots),
                unit.devices,
                rule_text(plane, unit.rule),
                candidate.text if candidate is not None and mine else "",
                unit.lost,
                unit.state.value,
                seconds(unit.at),
                unit.message if mine and story.viewer.sees_all else "",
                _nodes(story, unit) if mine else "",
                (candidate.place or None) if candidate is not None and mine else None,
            ),
        )


def _nodes(story: _Story, unit: VictimUnit) -> str:
    """Return where a unit ran, as far as the decision's input states it."""
    found = (story.candidates.get(uid) for uid in unit.roots)
    return listed(each.node for each in found if each is not None and each.node)


def _better(story: _Story, unit: VictimUnit) -> str:
    """Return what people call a unit: the job of a Workload, its group where it has one."""
    if len(unit.roots) > 1 or unit.unit.startswith("podgroup/"):
        return unit.unit
    return story.masking.unit_of(unit.root, unit.lineage)


def _spared(story: _Story, mirror: Mirror) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield who stayed: the viewer's own by name, others by fate where they are tenants enough."""
    judgement = story.judgement
    if judgement is None:
        return
    stayed = [each for each in judgement.candidates if _is_reported(each)]
    stayed.sort(key=lambda each: (_ORDER[each.fate], each.place, each.namespace, each.name))
    own = [each for each in stayed if story.viewer.sees(each.namespace)]
    for each in own[:_MOST_SPARED]:
        unit = _unit_of_candidate(mirror, each)
        yield (
            f"{each.kind}/{each.namespace}/{each.name}",
            (
                unit,
                1,
                devices_of(each.amounts.items()),
                each.fate.value,
                each.text,
                each.place or None,
                each.priority,
                each.queue or None,
                None if each.lost < 0 else each.lost,
                each.node or None,
            ),
        )
    foreign = [each for each in stayed if not story.viewer.sees(each.namespace)]
    for fate in _ORDER:
        yield from _together(f"more/{fate}", "more", fate, own[_MOST_SPARED:])
    if len({each.namespace for each in foreign}) >= _TENANTS:
        for fate in _ORDER:
            yield from _together(f"others/{fate}", "other tenants' work", fate, foreign)


def _together(
    key: str, text: str, fate: Fate, found: list[Candidate]
) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    alike = [each for each in found if each.fate is fate]
    if not alike:
        return
    gpus = sum(devices_of(each.amounts.items()) for each in alike)
    yield key, (text, len(alike), gpus, fate.value, "", None, None, None, None, None)


_ORDER: Final[Mapping[Fate, int]] = {Fate.REPRIEVED: 0, Fate.SPARED: 1, Fate.LEAVING: 2}
#: Work that could never have been evicted states nothing about the decision; it is counted.
_NO_CANDIDATES: Final = ("NotLower", "Elsewhere", "Unrelated")


def _is_reported(candidate: Candidate) -> bool:
    return candidate.fate in _ORDER and candidate.rule not in _NO_CANDIDATES


def _unit_of_candidate(mirror: Mirror, candidate: Candidate) -> str:
    named = f"{candidate.kind.lower()}/{candidate.namespace}/{candidate.name}"
    if candidate.kind == "Workload":
        found = mirror.workloads.named(candidate.namespace, candidate.name)
        return named if found is None or found.uid != candidate.uid else found.unit
    return named


def _sums(story: _Story) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield all units by node pool, namespace, group, rule and state, the most first."""
    plane = story.record.spec.plane
    totals: dict[tuple[str, ...], list[int]] = {}
    tenants = {unit.namespace for unit in story.units if not story.sees(unit)}
    for unit in story.units:
        candidate = story.candidates.get(unit.subject.uid)
        if story.sees(unit):
            pool = candidate.pool if candidate is not None else ""
            group = unit.unit.rpartition("/")[2] if unit.unit.startswith("podgroup/") else ""
            where = (pool, unit.namespace, group)
        elif len(tenants) >= _TENANTS:
            where = ("", "other tenants", "")
        else:
            continue
        key: tuple[str, ...] = (*where, rule_text(plane, unit.rule), unit.state.value)
        sums = totals.setdefault(key, [0, 0, 0, 0])
        for place, amount in enumerate((1, len(unit.roots), unit.devices, unit.lost or 0)):
            sums[place] += amount
    ordered = sorted(totals.items(), key=lambda item: (-item[1][1], item[0]))
    for names, sums in ordered[:_MOST_SUMS]:
        yield "/".join(names), (*names, *sums)


def _amounts(record: Preemption) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    proof = record.spec.proof
    parts = (proof.need, proof.free, proof.in_flight, proof.freed)
    for name in sorted({name for part in parts for name in part}):
        yield name, (name, *(whole(name, part.get(name, 0)) for part in parts))


def _placement(story: _Story) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield the nodes where the preemptor's pods fit; to who sees the preemptor alone."""
    preemptor = story.record.spec.preemptor
    if preemptor is None or not story.viewer.sees(preemptor.namespace):
        return
    counts = Counter(each.node for each in story.record.spec.placement)
    for node, number in sorted(counts.items())[:_MOST_PLACES]:
        yield node, (node, number)
