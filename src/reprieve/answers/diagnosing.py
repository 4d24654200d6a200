"""Queries the planes why a unit waits: they decide on a copy of the cluster, in virtual time.

Nothing is submitted. What would be admitted or placed without further changes is reported as such:
then only the next decision, or the end of those that are preempted, keeps it waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from time import monotonic, process_time
from typing import Final

from reprieve.answers.conditions import condition, is_unbound
from reprieve.answers.decided import Decided
from reprieve.answers.quantities import listed
from reprieve.answers.sources import Json
from reprieve.answers.starting import estimate_of, start_in
from reprieve.answers.tried import Trials, offered_alone, schedulers_of, tried
from reprieve.answers.unit import Unit, name_of, namespace_of
from reprieve.answers.unseen import hidden, unseen_texts
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import BEYOND_EVICTION
from reprieve.engine.idle.resources import is_gpu
from reprieve.engine.plan import Plane
from reprieve.kube.resource import NODES
from reprieve.planes.common.process_settings import SCHEDULER_NAME
from reprieve.planes.quota.plane import QuotaPlane
from reprieve.planes.quota.watches import CLUSTER_QUEUES
from reprieve.planes.scheduling.plane import SchedulingPlane
from reprieve.whatif.controllers.pod_templates import labels_of_flavors, preempting_classes
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.happened import Run, Undecided
from reprieve.whatif.questions.asked import requests_of_spec
from reprieve.whatif.questions.beside import affordable, spent
from reprieve.whatif.questions.idle_reason import idle_reason
from reprieve.whatif.questions.own_pods import of_own_pods
from reprieve.whatif.questions.planning import over_after
from reprieve.whatif.run import settled
from reprieve.whatif.snapshots.snapshot import Snapshot

__all__ = ["PlanesOfSnapshot", "asked_of_planes", "named_schedulers"]

# Without any of them all seems to be refused, or nothing to be requested.
_DECIDED_ON: Final = {Plane.SCHEDULING: NODES, Plane.QUOTA: CLUSTER_QUEUES}
_LONGEST_TRYING: Final = 3.0  # seconds for changes that would help
_DEFAULT_SCHEDULER: Final = "default-scheduler"


@dataclass(frozen=True, slots=True)
class PlanesOfSnapshot:
    """Has the planes decide on a stored snapshot; what it lacks cannot be requested.

    `deciders`: the planes, and how they are set, where pods of these schedulers are placed.
    `trying`: seconds of processor time for changes that would help; None: by the cluster's size.
    """

    snapshot: Snapshot
    deciders: Callable[[tuple[str, ...]], Deciders]
    trying: float | None = None

    async def __call__(self, unit: Unit, plane: Plane) -> Decided | None:
        """Return their diagnosis of a unit; None where they cannot decide here."""
        deciders = self.deciders(named_schedulers(unit))
        try:
            since = process_time()
            run = settled(self.snapshot, deciders)
            asking = affordable(process_time() - since)
            trials = Trials(asking if self.trying is None else self.trying)
            return await asked_of_planes(unit, run, plane, deciders, asking, trials)
        except Undecided as failure:
            return Decided(self.snapshot.at, notes=(f"The planes cannot decide: {failure}.",))


def named_schedulers(unit: Unit) -> tuple[str, ...]:
    """Return whose pods are placed: those of Reprieve, and those of the unit's own scheduler."""
    return (SCHEDULER_NAME, *sorted(schedulers_of(unit) - {SCHEDULER_NAME}))


async def asked_of_planes(
    unit: Unit,
    run: Run,
    plane: Plane,
    deciders: Deciders,
    asking: float,
    trials: Trials | None = None,
    report: Callable[[Decided], None] = lambda decided: None,
) -> Decided:
    """Return what the planes of a run state of a unit, which waits in one of them.

    For so many seconds of processor time (`asking`) the cluster is decided about again for when it
    starts, and as `trials` state for what would help. `report` is called with what they have found
    so far.
    """
    snapshot = run.overlay.snapshot
    needed = _DECIDED_ON.get(plane)
    if needed is not None and snapshot.refuses(needed):
        reported = f"It cannot be decided anew without {needed.plural}, which you may not list."
        return Decided(
            snapshot.at,
            unseen=tuple(unseen_texts(snapshot)),
            notes=(reported,),
            hidden=hidden(snapshot),
        )
    unseen, unknown = tuple(unseen_texts(snapshot)), hidden(snapshot)
    so_far = partial(Decided, snapshot.at, unseen=unseen, hidden=unknown)
    trials = trials or Trials(asking)
    diagnosis = await _diagnosis(
        unit, run, plane, lambda found: report(so_far(offered_alone(unit, plane, found)))
    )
    if diagnosis is not None:
        diagnosis = await tried(unit, snapshot, plane, diagnosis, deciders, trials)
    starts = None if diagnosis is not None else start_in(unit, run)
    owner, together = _owner(unit, run)
    estimate, idle = None, None
    if diagnosis is not None:
        over = spent(asking)
        estimate = await estimate_of(unit, run, plane, diagnosis, deciders, trials.client, over)
        gains = owner is not Plane.QUOTA and diagnosis.reason not in BEYOND_EVICTION
        if gains and _asks_for_gpus(unit, deciders):
            idle = idle_reason(run, unit.uids)
    return Decided(
        snapshot.at,
        diagnosis,
        starts,
        unseen,
        _notes(unit, run, plane),
        unknown,
        estimate,
        idle,
        owner,
        together,
    )


def _notes(unit: Unit, run: Run, plane: Plane) -> tuple[str, ...]:
    """Return what limits an answer: troubles of the run, and schedulers that were not queried."""
    notes = list(run.troubles)
    if not run.rest:
        notes.append("The planes had not come to an end after half an hour of the cluster's time.")
    others = {
        str(pod["spec"].get("schedulerName", _DEFAULT_SCHEDULER))
        for pod in unit.pods
        if is_unbound(pod)
    } - run.scheduler_names
    if plane is Plane.SCHEDULING and others:
        notes.append(f"Its pods are placed by {listed(others)}, which was not queried.")
    return tuple(notes)


def _owner(unit: Unit, run: Run) -> tuple[Plane | None, tuple[Plane, ...]]:
    """Return the plane that evicts for a unit, by the planes' own table, and all that decide."""
    joint = run.joint
    if joint is None or len(joint.planes) < 2:
        return None, ()
    reserved = None if unit.workload is None else condition(unit.workload, "QuotaReserved")
    specs = [pod["spec"] for pod in unit.pods if is_unbound(pod)]
    specs = specs or [each["template"].get("spec") or {} for each in _pod_sets(unit)]
    owner = joint.owner(
        awaits_quota=unit.workload is not None and (reserved or {}).get("status") != "True",
        scheduler_names={str(each.get("schedulerName", "default-scheduler")) for each in specs},
    )
    return owner, joint.planes


def _asks_for_gpus(unit: Unit, deciders: Deciders) -> bool:
    specs = [pod["spec"] for pod in unit.pods]
    specs += [each["template"].get("spec") or {} for each in _pod_sets(unit)]
    vendors = deciders.settings.start.vendors
    return any(is_gpu(name, vendors) for spec in specs for name in requests_of_spec(spec))


def _pod_sets(unit: Unit) -> list[Json]:
    return [] if unit.workload is None else list(unit.workload["spec"].get("podSets") or ())


async def _diagnosis(
    unit: Unit, run: Run, plane: Plane, report: Callable[[Diagnosis], None]
) -> Diagnosis | None:
    namespace = namespace_of(unit.asked)
    for each in run.planes:
        if plane is Plane.QUOTA and isinstance(each, QuotaPlane) and unit.workload is not None:
            name = name_of(unit.workload)
            if first := await each.waiting.diagnosis(namespace, name):
                report(first)
            return await each.waiting.diagnosis(namespace, name, fixes=True)
        if plane is Plane.SCHEDULING and isinstance(each, SchedulingPlane):
            over, classes = (
                over_after(monotonic() + _LONGEST_TRYING),
                tuple(preempting_classes(run.overlay)),
            )
            queued = unit.workload is not None
            imposed = labels_of_flavors(run.overlay) if queued else frozenset[str]()
            for kind, name in _names(unit):
                found = each.diagnosis(
                    kind,
                    namespace,
                    name,
                    fixes=True,
                    classes=classes,
                    imposed=imposed,
                    stop=over,
                    report=report,
                )
                if found is not None:
                    return of_own_pods(found, unit.uids)
    return None


def _names(unit: Unit) -> Iterable[tuple[str, str]]:
    if unit.group_name:
        yield "PodGroup", unit.group_name
    for pod in unit.pods:
        if is_unbound(pod):
            yield "Pod", name_of(pod)
