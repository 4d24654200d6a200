"""The page of one unit: its life over all attempts of its lineage, and why at each turn.

Parameters `kind`, `namespace`, `name`. Values: `unit`, `kind`, `namespace`, `name`, `state`,
`since`, `created`, `queue`, `clusterQueue`, `priority`, `attempts`, `gpus`, `idle`, `totals`,
`waits`, `command`. Tables: `life` (the bar), `displacements` (how it was preempted), `displaced`
(who preempted for it), `pods` (by node).

Figures are those of the records; why it was chosen is what deciding again states of the newest of
them (`records.why`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubeworld.units.instants import Nanos
from reprieve.engine.lost_work import devices_of, is_device
from reprieve.web.mirror.mirror import Mirror
from reprieve.web.mirror.pods import PodState
from reprieve.web.mirror.queues import WorkloadRecord, WorkloadState
from reprieve.web.mirror.sums import UnitSum
from reprieve.web.pages.asked import one
from reprieve.web.pages.waiters import waiter_of, what_helps
from reprieve.web.records.called import masking_of
from reprieve.web.records.life import Present, Segment, Stage, life
from reprieve.web.records.lineage import SeenLineage, lineage_of
from reprieve.web.records.masking import address_of
from reprieve.web.records.turns import Turn, turns_of
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
from reprieve.wording.displacements import rule_text

__all__ = ["page"]

_MOST_TURNS: Final = 200
_MOST_NODES: Final = 500
_LIFE: Final = (
    Column("state", Kind.WORD),
    Column("begin", Kind.INSTANT),
    Column("end", Kind.INSTANT),
    Column("gpus", Kind.NUMBER),
    Column("exact", Kind.FLAG),
    Column("preemption", Kind.TEXT),
)
_DISPLACEMENTS: Final = (
    Column("preemption", Kind.TEXT),
    Column("at", Kind.INSTANT),
    Column("ended", Kind.INSTANT),
    Column("plane", Kind.WORD),
    Column("by", Kind.UNIT),
    Column("rule", Kind.TEXT),
    Column("objects", Kind.NUMBER),
    Column("gpus", Kind.NUMBER),
    Column("lost", Kind.NUMBER),
    Column("ran", Kind.DURATION),
    Column("times", Kind.NUMBER),
    Column("why", Kind.TEXT),
    Column("spared", Kind.TEXT),
    Column("outcome", Kind.WORD),
)
_DISPLACED: Final = (
    Column("preemption", Kind.TEXT),
    Column("at", Kind.INSTANT),
    Column("plane", Kind.WORD),
    Column("units", Kind.NUMBER),
    Column("gpus", Kind.NUMBER),
    Column("lost", Kind.NUMBER),
    Column("rule", Kind.TEXT),
    Column("whose", Kind.LIST),
    Column("state", Kind.WORD),
)
_PODS: Final = (
    Column("node", Kind.TEXT),
    Column("state", Kind.WORD),
    Column("pods", Kind.NUMBER),
    Column("gpus", Kind.NUMBER),
    Column("since", Kind.INSTANT),
    Column("names", Kind.LIST),
)
_MOST_NAMED: Final = 4


def page(mirror: Mirror, viewer: Viewer, parameters: Parameters, at: Nanos) -> Page:
    """Return one unit.

    Raises:
        NotFound: no object and no record names it, or the viewer may not know of it.
        InvalidParameter: as of `one`.
    """
    kind, namespace, name = (one(parameters, each) for each in ("kind", "namespace", "name"))
    unit = f"{kind.lower()}/{namespace}/{name}"
    known = all((kind, namespace, name)) and unit.count("/") == 2 and viewer.sees(namespace)
    lineage = lineage_of(mirror, unit) if known else None
    if lineage is None:
        raise NotFound(f"no {kind} {namespace}/{name}")
    turns = turns_of(mirror, viewer, lineage)
    workload = _workload(mirror, lineage)
    present = _present(mirror, lineage, workload, mirror.unit(unit))
    segments = life([turn.displacement for turn in turns if turn.went], present)
    return Page(
        {
            **_identity(mirror, lineage, workload, present, segments),
            **_figures(mirror, viewer, lineage, workload, present, turns, at),
        },
        {
            "life": Table(_LIFE, dict(_life(segments))),
            "displacements": Table(_DISPLACEMENTS, dict(_displacements(turns))),
            "displaced": Table(_DISPLACED, dict(_displaced(mirror, viewer, lineage))),
            "pods": Table(_PODS, dict(_pods(mirror, lineage))),
        },
    )


def _identity(
    mirror: Mirror,
    lineage: SeenLineage,
    workload: WorkloadRecord | None,
    present: Present,
    segments: list[Segment],
) -> dict[str, Any]:
    total = mirror.unit(lineage.unit)
    since = None
    if segments:
        since = segments[-1].begin if present.stage is not None else segments[-1].end
    return {
        "unit": lineage.unit,
        "kind": lineage.kind,
        "namespace": lineage.namespace,
        "name": lineage.name,
        "state": present.stage.value if present.stage is not None else "Gone",
        "since": seconds(since),
        "created": seconds(present.created),
        "queue": total.queue or (workload.queue if workload else ""),
        "clusterQueue": workload.cluster_queue if workload else "",
        "priority": workload.priority if workload else None,
        "command": f"reprieve explain {lineage.kind.lower()}/{lineage.name} -n {lineage.namespace}",
    }


def _figures(
    mirror: Mirror,
    viewer: Viewer,
    lineage: SeenLineage,
    workload: WorkloadRecord | None,
    present: Present,
    turns: list[Turn],
    at: Nanos,
) -> dict[str, Any]:
    went = [turn for turn in turns if turn.went]
    return {
        "attempts": len(went) + (present.stage is not None),
        "gpus": present.devices,
        "idle": _idle(mirror, lineage),
        "totals": {
            "displaced": len(went),
            "lost": sum(turn.displacement.lost or 0 for turn in went),
            "day": sum(turn.is_within_a_day_of(at) for turn in went),
        },
        "waits": _waits(mirror, viewer, lineage, workload),
    }


def _workload(mirror: Mirror, lineage: SeenLineage) -> WorkloadRecord | None:
    """Return the unit's newest Workload, also where it is the unit itself."""
    found = mirror.workloads_of(lineage.unit)
    if lineage.kind == "Workload" and not found:
        named = mirror.workloads.named(lineage.namespace, lineage.name)
        found = [] if named is None else [named]
    return max(found, key=lambda each: (each.created, each.name), default=None)


def _present(
    mirror: Mirror, lineage: SeenLineage, workload: WorkloadRecord | None, total: UnitSum
) -> Present:
    turns: Mapping[str, Nanos] = workload.turns if workload is not None else {}
    created = workload.created if workload is not None else total.waits_since or None
    held, waiting = devices_of(total.held.items()), devices_of(total.waiting.items())
    return Present(
        _stage(mirror, lineage, workload, total),
        held or waiting or (_devices_asked(mirror, workload) if workload is not None else 0),
        created or None,
        turns.get("Admitted") or turns.get("QuotaReserved"),
        total.since or None,
        turns.get("PodsReady"),
        turns.get("Finished"),
    )


def _devices_asked(mirror: Mirror, workload: WorkloadRecord) -> int:
    return devices_of(mirror.devices.of_workload(workload)[0].items())


def _stage(
    mirror: Mirror, lineage: SeenLineage, workload: WorkloadRecord | None, total: UnitSum
) -> Stage | None:
    if workload is not None and workload.state is WorkloadState.FINISHED:
        return Stage.FINISHED
    holding = sum(count for _, count in total.nodes)
    leaving = [pod for pod in mirror.pods.by("unit", lineage.unit) if pod.state is PodState.LEAVING]
    if holding and len(leaving) == holding:
        return Stage.LEAVES
    queued = workload is not None and workload.state in (
        WorkloadState.PENDING,
        WorkloadState.RESERVING,
    )
    if total.waiting_pods or (queued and not holding):
        return Stage.WAITS
    if holding:
        return Stage.RUNS if total.running + len(leaving) >= holding else Stage.STARTS
    if mirror.pods.by("unit", lineage.unit):
        return Stage.FINISHED
    return Stage.STARTS if workload is not None and workload.state.holds else None


def _idle(mirror: Mirror, lineage: SeenLineage) -> dict[str, Any] | None:
    total = mirror.unit(lineage.unit)
    for each in mirror.idle.by("unit", lineage.unit):
        return {
            "gpus": devices_of(total.idle.items()),
            "phase": each.phase,
            "since": seconds(each.since),
            "utilization": each.utilization,
            "polled": seconds(each.polled),
        }
    return None


def _waits(
    mirror: Mirror, viewer: Viewer, lineage: SeenLineage, workload: WorkloadRecord | None
) -> dict[str, Any] | None:
    """Return why it waits, by its objects and the events about it."""
    total = mirror.unit(lineage.unit)
    asked = {} if workload is None else mirror.devices.of_workload(workload)[0]
    resources = sorted({*total.waiting, *asked}, key=lambda name: (not is_device(name), name))
    for resource in resources:
        found = waiter_of(mirror, lineage.unit, resource)
        if found is not None:
            return {
                "plane": found.plane,
                "reason": found.reason,
                "message": found.message,
                "step": what_helps(found),
                "since": seconds(found.since),
                "queue": found.queue,
                "position": found.position or None,
                "shape": found.shape,
                "resource": resource,
            }
    return None


def _life(segments: list[Segment]) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    for number, each in enumerate(segments[-3 * _MOST_TURNS :]):
        yield str(number), _segment(each)


def _segment(each: Segment) -> tuple[Cell, ...]:
    return (
        each.stage.value,
        seconds(each.begin),
        seconds(each.end),
        each.devices,
        each.exact,
        each.plan,
    )


def _displacements(turns: list[Turn]) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield how it was preempted, the newest first."""
    for number, turn in reversed(list(enumerate(turns))[-_MOST_TURNS:]):
        each = turn.displacement
        ran = None
        if each.begun is not None:
            ran = round((each.evicting - each.begun) / 1_000_000_000, 3)
        yield (
            str(number),
            (
                each.plan,
                seconds(each.evicting),
                seconds(each.ended),
                turn.plane,
                turn.by,
                turn.rule,
                turn.objects,
                each.devices,
                each.lost,
                ran,
                turn.times,
                turn.why,
                turn.spared_by,
                turn.outcome,
            ),
        )


def _displaced(
    mirror: Mirror, viewer: Viewer, lineage: SeenLineage
) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield who was preempted for it, the newest first."""
    newest = sorted(lineage.preempted, key=lambda each: each.decided, reverse=True)
    for each in newest[:_MOST_TURNS]:
        masking = masking_of(mirror, viewer, each.record, lineage.namespace)
        lost = [unit.lost for unit in each.units if unit.lost is not None]
        whose = [
            masking.shown(unit.root, unit.lineage, unit.unit if len(unit.roots) > 1 else "").text
            for unit in each.units[:_MOST_NAMED]
        ]
        rules = sorted({rule_text(each.plane, unit.rule) for unit in each.units})
        yield (
            each.name,
            (
                address_of(each.record, viewer),
                seconds(each.decided),
                each.plane,
                len(each.units) or None,
                sum(unit.devices for unit in each.units) if each.units else None,
                sum(lost) if lost else None,
                ", ".join(rules),
                whose,
                each.phase,
            ),
        )


def _pods(mirror: Mirror, lineage: SeenLineage) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Yield its pods by node and state."""
    found: dict[tuple[str, str], list[Any]] = {}
    for pod in mirror.pods.by("unit", lineage.unit):
        found.setdefault((pod.node or pod.nominated, pod.state.value), []).append(pod)
    for (node, state), pods in sorted(found.items())[:_MOST_NODES]:
        names = sorted(pod.name for pod in pods)
        yield (
            f"{node}/{state}",
            (
                node,
                state,
                len(pods),
                sum(devices_of(mirror.devices.of_pod(pod)) for pod in pods),
                seconds(min(pod.since for pod in pods) or None),
                names[:_MOST_NAMED],
            ),
        )
