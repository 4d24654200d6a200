"""When a unit that waits will start, in a run or as an estimate.

Of a unit that is there already, similar waits are only those that were longer than it has waited
until now. What made way before has no estimate from measured waits: first waits are measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reprieve.answers.conditions import condition, is_unbound
from reprieve.answers.quantities import instant_or_none, summed
from reprieve.answers.sources import Json
from reprieve.answers.unit import Unit, uid_of
from reprieve.engine.diagnosis.estimates import Estimate
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.plan import Plane
from reprieve.units.errors import UsageError
from reprieve.units.instants import Nanos
from reprieve.whatif.asked import requests_of_spec
from reprieve.whatif.estimating import JUST_WAITS, by_run_times, known, measured
from reprieve.whatif.run import Deciders, Run, Undecided, settled
from reprieve.whatif.similar import Alike, pod_cases, size_class, workload_cases
from reprieve.whatif.snapshot import Snapshot

__all__ = ["estimate_of", "start_in"]

_WORKLOADS: Final = ("kueue.x-k8s.io", "workloads")
_PODS: Final = ("", "pods")


def start_in(unit: Unit, run: Run) -> Nanos | None:
    """Return when the last of its pods got a node, or its Workload its admission."""
    uids = {uid_of(pod) for pod in unit.pods if is_unbound(pod)}
    workload = None if unit.workload is None else uid_of(unit.workload)
    found: dict[str, Nanos] = {}
    for change in run.overlay.history:
        if change.new is None:
            continue
        uid = uid_of(change.new)
        if change.kind == _PODS and uid in uids and change.new["spec"].get("nodeName"):
            found.setdefault(uid, change.at)
        if change.kind == _WORKLOADS and uid == workload and _is_admitted(change.new):
            found.setdefault(uid, change.at)
    wanted = uids or {workload or ""}
    return max(found.values()) if wanted <= set(found) else None


async def estimate_of(
    unit: Unit,
    run: Run,
    plane: Plane,
    diagnosis: Diagnosis,
    deciders: Deciders,
    over: Callable[[], bool],
) -> Estimate:
    """Return when a unit starts at the latest, or why there is no estimate.

    `over` says that there is no time to decide about the cluster again.
    """
    found = known(diagnosis)
    if found is not None:
        return found

    async def starts(snapshot: Snapshot) -> bool:
        try:
            return start_in(unit, settled(snapshot, deciders)) is not None
        except (UsageError, Undecided):
            return False  # with that room others would make more pods than there may be, say

    snapshot = run.overlay.snapshot
    found = await by_run_times(snapshot, starts, over, unit.uids)
    return found or _measured(unit, snapshot, plane)


def _measured(unit: Unit, snapshot: Snapshot, plane: Plane) -> Estimate:
    waiting = [pod for pod in unit.pods if is_unbound(pod)]
    if plane is Plane.QUOTA and unit.workload is not None:
        if condition(unit.workload, "Evicted") is not None:
            return Estimate(why="it has made way before, and first waits alone are measured")
        spec, place = unit.workload["spec"], unit.cluster_queue
        sets = [
            {name: int(each.get("count", 1)) * amount for name, amount in requests.items()}
            for each in spec.get("podSets") or ()
            for requests in (requests_of_spec(each["template"].get("spec") or {}),)
        ]
        own, total, priority = unit.workload, summed(sets), spec.get("priority")
        uids = frozenset((uid_of(own),))
    elif waiting:
        own, spec = waiting[0], waiting[0]["spec"]
        members = unit.pods if unit.group_name else waiting[:1]
        total = summed(requests_of_spec(pod["spec"]) for pod in members)
        place, priority = str(spec.get("schedulerName") or ""), spec.get("priority")
        uids = frozenset(map(uid_of, unit.pods))
    else:
        return Estimate(why="its pods are not there")
    alike = Alike(place, int(priority or 0), size_class(total), uids)
    created = instant_or_none(own["metadata"].get("creationTimestamp"))
    waited = JUST_WAITS if created is None else max(JUST_WAITS, snapshot.at - created)
    if plane is Plane.QUOTA:
        return measured(workload_cases(snapshot, alike), f"in ClusterQueue {place}", waited)
    return measured(pod_cases(snapshot, alike), f"among pods of {place}", waited)


def _is_admitted(workload: Json) -> bool:
    found = condition(workload, "Admitted")
    return found is not None and found.get("status") == "True"
