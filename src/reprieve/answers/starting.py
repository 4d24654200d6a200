"""When a unit that waits will start, in a run or as an estimate (`whatif.questions.estimating`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubeworld.units.instants import Nanos
from reprieve.answers.conditions import condition, is_unbound
from reprieve.answers.quantities import summed
from reprieve.answers.sources import Json
from reprieve.answers.unit import Unit, uid_of
from reprieve.engine.diagnosis.estimates import Estimate
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.plan import Plane
from reprieve.kube.reader import Reader
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.happened import Run
from reprieve.whatif.questions.asked import requests_of_spec
from reprieve.whatif.questions.estimating import Waiter, estimated, waiting_pod, waiting_workload
from reprieve.whatif.run import decided
from reprieve.whatif.snapshots.snapshot import Snapshot

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
    client: Reader | None,
    over: Callable[[], bool],
) -> Estimate:
    """Return when a unit starts at the latest, or why there is no estimate.

    `client` reads what turns out to be missing, None without one; `over` states that there is no
    time to decide about the cluster again.
    """

    async def starts(snapshot: Snapshot) -> bool:
        return start_in(unit, await decided(client, snapshot, deciders)) is not None

    snapshot = run.overlay.snapshot
    waiter = _waiter(unit, plane, snapshot.at)
    return await estimated(snapshot, diagnosis, waiter, starts, over)


def _waiter(unit: Unit, plane: Plane, at: Nanos) -> Waiter | None:
    """Return what waits; None where it has no pods."""
    if plane is Plane.QUOTA and unit.workload is not None:
        return waiting_workload(unit.workload, unit.cluster_queue, unit.uids, at)
    pod = next(filter(is_unbound, unit.pods), None)
    if pod is None:
        return None
    total = summed(requests_of_spec(each["spec"]) for each in unit.pods)
    return waiting_pod(pod, total, unit.uids, at)


def _is_admitted(workload: Json) -> bool:
    found = condition(workload, "Admitted")
    return found is not None and found.get("status") == "True"
