"""The page Preemptions: every plan of which the viewer may know, the newest first.

Parameters: `plane`, `state`, `ns` (repeated), `since` (a duration such as 24h), `dry` (1: dry runs
too). Values: `planes`, `states`, `found`, `shown`. Table `preemptions`: preemption (by what it is
addressed), decided, plane, preemptor, units, victims, gpus, lost, state, took, rule, whose, dryRun,
stages. The records of one demand are one row, in the place of the last one.

A viewer who does not see the preemptor is shown his own victims alone. A plan whose record may not
be read is reported by the viewer's Disruptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from kubeworld.units.durations import InvalidDuration, parse_duration
from kubeworld.units.instants import Nanos, instant_or_none
from reprieve.answers.quantities import listed
from reprieve.api.reprieve import IntentPhase
from reprieve.engine.plan import Plane
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.reported import DisruptionRecord, PreemptionRecord
from reprieve.web.pages.asked import asked_of, one
from reprieve.web.records.called import masking_of
from reprieve.web.records.masking import address_of, is_visible
from reprieve.web.records.reported_disruptions import values_of_disruptions
from reprieve.web.tables import (
    Cell,
    Column,
    InvalidParameter,
    Kind,
    Page,
    Parameters,
    Table,
    Viewer,
    seconds,
)
from reprieve.wording.demands import stages_text
from reprieve.wording.displacements import rule_text

__all__ = ["page"]

_MOST: Final = 2_000
_MOST_NAMED: Final = 3
_SECOND: Final = 1_000_000_000
_COLUMNS: Final = (
    Column("preemption", Kind.TEXT),
    Column("decided", Kind.INSTANT),
    Column("plane", Kind.WORD),
    Column("preemptor", Kind.UNIT),
    Column("units", Kind.NUMBER),
    Column("victims", Kind.NUMBER),
    Column("gpus", Kind.NUMBER),
    Column("lost", Kind.NUMBER),
    Column("state", Kind.WORD),
    Column("duration", Kind.DURATION),
    Column("rule", Kind.TEXT),
    Column("whose", Kind.LIST),
    Column("dryRun", Kind.FLAG),
    Column("stages", Kind.TEXT),
)
_PLANES: Final = tuple(each.value for each in Plane)
_STATES: Final = tuple(each.value for each in IntentPhase)

_Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class _Wanted:
    plane: str
    state: str
    namespaces: frozenset[str]
    since: int
    dry: bool

    def includes(self, plane: str, state: str, decided: int, dry: bool) -> bool:
        return (
            self.plane in ("", plane)
            and self.state in ("", state)
            and decided >= self.since
            and (self.dry or not dry)
        )

    def has(self, namespace: str) -> bool:
        return not self.namespaces or namespace in self.namespaces


def page(mirror: Mirror, viewer: Viewer, parameters: Parameters, at: Nanos) -> Page:
    """Return the preemptions.

    Raises:
        InvalidParameter: a word that is none, or a duration that cannot be read.
    """
    wanted = _wanted(mirror, parameters, at)
    found = [*_recorded(mirror, viewer, wanted), *_reported(mirror, viewer, wanted)]
    found.sort(key=itemgetter(0), reverse=True)
    rows = {key: row for _, key, row in found[:_MOST]}
    return Page(
        {
            "planes": list(_PLANES),
            "states": list(_STATES),
            "found": len(found),
            "shown": len(rows),
        },
        {"preemptions": Table(_COLUMNS, rows)},
    )


def _wanted(mirror: Mirror, parameters: Parameters, at: Nanos) -> _Wanted:
    since, text = 0, one(parameters, "since")
    if text:
        try:
            since = at - parse_duration(text)
        except InvalidDuration:
            said = f"since {text!r}: accepted: a duration such as 30m, 24h"
            raise InvalidParameter(said) from None
    return _Wanted(
        _word(parameters, "plane", _PLANES),
        _word(parameters, "state", _STATES),
        asked_of(mirror, {"ns": parameters.get("ns", ())}).namespaces,
        since,
        _word(parameters, "dry", ("0", "1")) == "1",
    )


def _word(parameters: Parameters, name: str, accepted: tuple[str, ...]) -> str:
    given = one(parameters, name)
    if given and given not in accepted:
        raise InvalidParameter(f"{name} {given!r}: accepted: {', '.join(accepted)}")
    return given


def _recorded(mirror: Mirror, viewer: Viewer, wanted: _Wanted) -> Iterator[tuple[Nanos, str, _Row]]:
    said = {
        each.plan_id: each.disruption.spec.preemptor
        for each in mirror.disruptions
        if viewer.sees(each.namespace)
    }
    named = {each.name: each for each in mirror.preemptions}
    gone_on = {s.preemption for each in named.values() for s in each.record.spec.stages}
    for each in named.values():
        if each.name in gone_on:
            continue
        chosen = wanted.includes(each.plane, each.phase, each.decided, each.dry_run)
        if chosen and is_visible(each.record, viewer):
            spaces = {unit.namespace for unit in each.units}
            spec = each.record.spec
            if spec.preemptor is not None:
                spaces.add(spec.preemptor.namespace)
            if any(wanted.has(space) and viewer.sees(space) for space in spaces):
                reported = said.get(each.plan_id, "")
                former = [named[s.preemption] for s in spec.stages if s.preemption in named]
                row = _row(mirror, viewer, each, reported, former)
                yield each.decided, f"{row[0]}/{spec.attempt}/{each.decided}", row


def _row(
    mirror: Mirror,
    viewer: Viewer,
    each: PreemptionRecord,
    reported: str,
    former: Sequence[PreemptionRecord] = (),
) -> _Row:
    """Return one row; `reported`: its preemptor, as a Disruption of the viewer's states it.

    `former`: the records of earlier stages of its demand, whose victims are counted with its own.
    """
    record = each.record
    spec, plane = record.spec, record.spec.plane
    masking = masking_of(mirror, viewer, record)
    preemptor = spec.preemptor
    whole = viewer.sees_all or (preemptor is not None and viewer.sees(preemptor.namespace))
    stages = (*former, each)
    # Two records may name one victim, which was evicted once.
    units = {tuple(unit.roots): (by.plane, unit) for by in stages for unit in by.units}
    found = list(units.values())
    found = [(by, unit) for by, unit in found if whole or viewer.sees(unit.namespace)]
    own = [unit for _, unit in found]
    lost = [unit.lost for unit in own if unit.lost is not None]
    rules = {rule_text(by, unit.rule) for by, unit in found}
    number = sum(len(unit.roots) for unit in own)
    if whole and any(stage.record.spec.parts for stage in stages):
        number = sum(stage.record.spec.number_of_victims for stage in stages)
    named = [
        masking.shown(unit.root, unit.lineage, unit.unit if len(unit.roots) > 1 else "").text
        for unit in own[:_MOST_NAMED]
    ]
    finished = instant_or_none(record.status.finished_at)
    return (
        address_of(record, viewer),
        seconds(each.decided),
        plane,
        masking.preemptor(record, "" if whole else reported).text,
        # Of a plan in parts the record alone does not state how many units there are.
        len(own) or None,
        number,
        sum(unit.devices for unit in own) if own else None,
        sum(lost) if lost else None,
        each.phase,
        None if finished is None else round((finished - each.decided) / _SECOND, 3),
        listed(rules),
        named,
        each.dry_run,
        stages_text((plane, "") for plane, _ in groupby(spec.stages, lambda each: each.plane)),
    )


def _reported(mirror: Mirror, viewer: Viewer, wanted: _Wanted) -> Iterator[tuple[Nanos, str, _Row]]:
    """Yield plans of which there are Disruptions alone."""
    known = {each.plan_id for each in mirror.preemptions if is_visible(each.record, viewer)}
    by_plan: dict[str, list[DisruptionRecord]] = {}
    for each in mirror.disruptions:
        seen = viewer.sees(each.namespace) and wanted.has(each.namespace)
        if seen and each.plan_id not in known:
            by_plan.setdefault(each.plan_id, []).append(each)
    for plan, reported in by_plan.items():
        values = values_of_disruptions(reported)
        noticed = instant_or_none(reported[0].disruption.spec.noticed_at) or Nanos(0)
        if not wanted.includes(values["plane"], IntentPhase.COMPLETED.value, noticed, False):
            continue
        yield (
            noticed,
            f"plan/{plan}",
            (
                plan,
                values["decided"],
                values["plane"],
                values["preemptor"],
                len(reported),
                values["totals"]["objects"],
                None,
                values["totals"]["lost"],
                IntentPhase.COMPLETED.value,
                None,
                listed(each.disruption.spec.rule for each in reported),
                [each.unit for each in reported[:_MOST_NAMED]],
                False,
                "",
            ),
        )
