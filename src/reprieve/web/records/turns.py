"""The displacements of one lineage, joined from records, Disruptions and judgements.

A record and the Disruptions of the same plan are one turn: who preempted, what it held and how it
came out stand in the record; how often it happened and what would have spared it in the Disruption.
The newest few records are decided again, for why this one was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.api.reprieve import VictimState
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.pods import NEVER
from reprieve.web.mirror.reported import DisruptionRecord, PreemptionRecord
from reprieve.web.records.called import masking_of
from reprieve.web.records.judged import Candidate, Judgement
from reprieve.web.records.life import Displacement
from reprieve.web.records.lineage import SeenLineage
from reprieve.web.records.masking import address_of
from reprieve.web.records.victims import VictimUnit
from reprieve.web.records.why import why_chosen
from reprieve.web.tables import Viewer
from reprieve.wording.displacements import rule_text, spared_by

__all__ = ["Turn", "turns_of"]

_DAY: Final = 24 * HOUR
_MOST_OPENED: Final = 3
_STATES: Final = (
    VictimState.EVICTED,
    VictimState.GONE,
    VictimState.PENDING,
    VictimState.FAILED,
    VictimState.SPARED,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One plan by which it was preempted, or was to.

    Attributes:
        displacement: as the bar needs it.
        went: it was preempted, or is leaving; else it was spared, or ended by another plan.
        by: for whom, as the viewer may know it.
        times: how often the lineage was displaced in the 24 hours before, this time included.
        why: why this one; empty where it was not decided again.
    """

    displacement: Displacement
    went: bool
    plane: str
    by: str
    rule: str
    objects: int
    times: int
    why: str
    spared_by: str
    outcome: str

    def is_within_a_day_of(self, instant: Nanos) -> bool:
        """Return whether it was less than 24 hours before an instant."""
        return instant - self.displacement.evicting < _DAY


@dataclass(frozen=True, slots=True)
class _Plan:
    record: PreemptionRecord | None
    units: tuple[VictimUnit, ...]
    reported: tuple[DisruptionRecord, ...]


def turns_of(mirror: Mirror, viewer: Viewer, lineage: SeenLineage) -> list[Turn]:
    """Return the turns of a lineage in the order of time; dry runs are none."""
    plans = _plans(lineage)
    plans.sort(key=_noticed)
    opened = {id(each) for each in [plan for plan in plans if plan.record][-_MOST_OPENED:]}
    turns: list[Turn] = []
    for plan in plans:
        judgement = _judgement(mirror, plan) if id(plan) in opened else None
        turns.append(_turn(mirror, viewer, lineage, plan, judgement, turns))
    return turns


def _plans(lineage: SeenLineage) -> list[_Plan]:
    records: dict[str, list[tuple[PreemptionRecord, VictimUnit]]] = {}
    for record, unit in lineage.victims:
        if not record.dry_run:
            records.setdefault(record.uid, []).append((record, unit))
    reported: dict[str, list[DisruptionRecord]] = {}
    for each in lineage.displaced:
        reported.setdefault(each.plan_id, []).append(each)
    found = []
    for pairs in records.values():
        record = pairs[0][0]
        # A plan that was tried again has the same id, and its Disruptions are of the last time.
        found.append(
            _Plan(
                record,
                tuple(unit for _, unit in pairs),
                tuple(each for each in reported.get(record.plan_id, ()) if _is_of(each, record)),
            )
        )
    used = {each.uid for plan in found for each in plan.reported}
    for alike in reported.values():
        rest = tuple(each for each in alike if each.uid not in used)
        if rest:
            found.append(_Plan(None, (), rest))
    return found


def _is_of(reported: DisruptionRecord, record: PreemptionRecord) -> bool:
    noticed = instant_or_none(reported.disruption.spec.noticed_at)
    return noticed is None or noticed == record.decided


def _noticed(plan: _Plan) -> Nanos:
    if plan.record is not None:
        return plan.record.decided
    return instant_or_none(plan.reported[0].disruption.spec.noticed_at) or NEVER


def _judgement(mirror: Mirror, plan: _Plan) -> Judgement | None:
    record = plan.record
    if record is None:
        return None
    opened = mirror.opened.whole(record.namespace, record.name, record.uid)
    return None if opened is None else opened.judgement


def _turn(
    mirror: Mirror,
    viewer: Viewer,
    lineage: SeenLineage,
    plan: _Plan,
    judgement: Judgement | None,
    before: Sequence[Turn],
) -> Turn:
    specs = [each.disruption.spec for each in plan.reported]
    candidates = _candidates(plan, judgement)
    displacement = _displacement(viewer, plan, candidates)
    outcome = _outcome(plan)
    went = outcome in (VictimState.EVICTED, VictimState.PENDING)
    day = sum(each.went and each.is_within_a_day_of(displacement.evicting) for each in before)
    said = next((spec.preemptor for spec in specs), "")
    by, rules, spared = said, {spec.rule for spec in specs}, {spec.spared_by for spec in specs}
    plane = specs[0].plane if specs else ""
    if plan.record is not None:
        plane = plan.record.plane
        masking = masking_of(mirror, viewer, plan.record.record, lineage.namespace)
        by = masking.preemptor(plan.record.record, said).text
        rules = {rule_text(plane, unit.rule) for unit in plan.units}
        spared = spared or {spared_by(plane, unit.rule) for unit in plan.units}
    objects = sum(len(unit.roots) for unit in plan.units) or sum(spec.objects for spec in specs)
    why = ""
    if judgement is not None and candidates:
        why = why_chosen(plane, candidates[0], judgement)
    return Turn(
        displacement,
        went,
        plane,
        by,
        "; ".join(sorted(rules)),
        objects,
        day + went,
        why,
        ", or ".join(sorted(filter(None, spared))),
        outcome.value,
    )


def _candidates(plan: _Plan, judgement: Judgement | None) -> list[Candidate]:
    uids = {unit.subject.uid for unit in plan.units}
    return [each for each in judgement.candidates if each.uid in uids] if judgement else []


def _displacement(viewer: Viewer, plan: _Plan, candidates: Sequence[Candidate]) -> Displacement:
    specs = [each.disruption.spec for each in plan.reported]
    begun = [instant_or_none(spec.evicting_at) for spec in specs]
    over = [instant_or_none(spec.ended_at) for spec in specs]
    noticed = _noticed(plan)
    lost = [spec.lost_device_seconds for spec in specs]
    devices: int | None = None
    address = plan.reported[0].plan_id if plan.reported else ""
    if plan.record is not None:
        status = plan.record.record.status
        address = address_of(plan.record.record, viewer)
        begun = begun or [instant_or_none(status.started_at)]
        over = over or [unit.at if unit.state.over else None for unit in plan.units]
        lost = [unit.lost for unit in plan.units if unit.lost is not None] or lost
        devices = sum(unit.devices for unit in plan.units)
    ended = [each for each in over if each is not None]
    since = [each.since for each in candidates if each.since]
    return Displacement(
        plan=address,
        noticed=noticed,
        evicting=min((each for each in begun if each is not None), default=noticed),
        ended=max(ended) if ended and len(ended) == len(over) else None,
        devices=devices,
        lost=sum(lost) if lost else None,
        begun=Nanos(max(since)) if since else None,
    )


def _outcome(plan: _Plan) -> VictimState:
    if plan.record is None:
        return VictimState.EVICTED
    states = {unit.state for unit in plan.units}
    if VictimState.PENDING in states and not plan.record.record.status.phase.open:
        # No controller touched it before the plan was given up.
        states = (states - {VictimState.PENDING}) or {VictimState.SPARED}
    return next(each for each in _STATES if each in states)
