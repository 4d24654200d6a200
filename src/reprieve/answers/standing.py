"""How a unit stands now: running, waiting, on its way out, stopped, finished, or not known.

The first state that holds is reported:

1. finished: the job states it, its Workload, or all of its pods are over
2. waits: its Workload has no quota or is not admitted, or pods of it have no node
3. leaves: it is being deleted, or pods of it are
4. starts: pods of it have a node and do not run yet
5. runs
6. stopped: it has no pods and wants none, or another controller holds it
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kubeworld.objects.paths import first
from kubeworld.objects.pods import is_over
from kubeworld.units.instants import Nanos, instant_or_none
from kubeworld.units.untrusted import integer_or_none
from reprieve.answers.conditions import (
    Reported,
    condition,
    gates_of,
    is_held_for_quota,
    is_unbound,
    minimum_of,
    of_pods,
    of_workload,
)
from reprieve.answers.document import State, Step
from reprieve.answers.kinds import job_kind_of
from reprieve.answers.quantities import listed
from reprieve.answers.sources import Json
from reprieve.answers.unit import Unit, name_of, namespace_of
from reprieve.api.kueue_validation_jobs import QUEUE_NAME
from reprieve.api.reprieve import FORMER_REPLICAS
from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.plan import Plane
from reprieve.jobs.pods import prebuilt_of
from reprieve.jobs.reading import end, is_suspended
from reprieve.units.counts import counted

__all__ = ["Standing", "let_run", "standing_of"]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a unit stands.

    Attributes:
        state: in a word.
        since: since when, where that is known.
        text: what more is stated of it, as the end of a sentence.
        reported: why it waits, by what its objects state.
        waiting: the pods without a node.
        nodes: where its pods are.
        remedy: what makes a stopped one run, or gives pods to one that lacks them.
        refused: why it has fewer pods than it wants, where the API server refuses them.
        failed: the pods without which its group is below its minimum, where some have failed.
    """

    state: State
    since: Nanos | None = None
    text: str = ""
    reported: Reported | None = None
    waiting: tuple[Json, ...] = ()
    nodes: tuple[str, ...] = ()
    remedy: Step | None = None
    refused: str = ""
    failed: str = ""


def standing_of(unit: Unit, *, groups_known: bool = True) -> Standing:
    """Return how a unit stands; `groups_known` as of `of_pods`."""
    over = _finished(unit)
    if over is not None:
        return over
    live = [pod for pod in unit.pods if not is_over(pod)]
    bound = [pod for pod in live if pod["spec"].get("nodeName")]
    nodes = tuple(str(pod["spec"]["nodeName"]) for pod in bound)
    waiting = tuple(pod for pod in live if is_unbound(pod))
    queued = _queued(unit)
    held = any(is_held_for_quota(pod) for pod in waiting)
    if queued is not None and (held or all(map(_leaves, bound))):
        return Standing(State.WAITS, queued.since, reported=queued, waiting=waiting, nodes=nodes)
    gates = gates_of(waiting)
    if waiting and len(gates_of(waiting[:1])) and gates:
        text = f"{counted(len(waiting), 'pod')} held by scheduling gate {listed(gates)}"
        remedy = Step(
            "The controller that set the gate removes it when what it waits for is there.",
            field="spec.schedulingGates",
        )
        return Standing(State.STOPPED, text=text, waiting=waiting, nodes=nodes, remedy=remedy)
    if waiting:
        reported = of_pods(unit, waiting, groups_known)
        return Standing(
            State.WAITS, reported.since, reported=reported, waiting=waiting, nodes=nodes
        )
    leaving = [pod for pod in live if _leaves(pod)]
    if leaving or unit.asked["metadata"].get("deletionTimestamp"):
        return Standing(State.LEAVES, _leaving_since(unit, leaving), nodes=nodes)
    if bound:
        return _running(bound, nodes, unit.asked["kind"] == "Pod")
    return _without_pods(unit)


def _finished(unit: Unit) -> Standing | None:
    for obj in (unit.asked, unit.root):
        row = job_kind_of(obj)
        ended = end(row, obj) if row is not None else None
        if ended is not None:
            how = "succeeded" if ended.succeeded else "failed"
            text = f"{how}: {ended.message}" if ended.message else how
            about = condition(obj, "Complete", "Failed", "Completed", "Succeeded")
            since = instant_or_none((about or {}).get("lastTransitionTime"))
            return Standing(State.FINISHED, since or _ended(unit.pods), text)
    done = condition(unit.workload, "Finished") if unit.workload is not None else None
    if done is not None and done.get("status") == "True":
        since = instant_or_none(done.get("lastTransitionTime"))
        return Standing(State.FINISHED, since, f"finished: {done.get('message', '')}")
    if unit.pods and unit.asked["kind"] != "Pod" and all(map(is_over, unit.pods)):
        failed = sum(1 for pod in unit.pods if pod["status"]["phase"] == "Failed")
        if unit.root["kind"] == unit.asked["kind"] and unit.asked["kind"] not in ("PodGroup",):
            return None  # its controller makes other pods
        text = f"failed: {counted(failed, 'pod')} did" if failed else "finished: all pods succeeded"
        return Standing(State.FINISHED, _ended(unit.pods), text)
    return None


def _queued(unit: Unit) -> Reported | None:
    """Return why its Workload keeps it waiting, None where it does not."""
    workload = unit.workload
    if workload is None or (workload.get("spec") or {}).get("active") is False:
        return None
    admitted = condition(workload, "Admitted")
    if admitted is not None and admitted.get("status") == "True":
        return None
    return of_workload(workload)


def _leaves(pod: Json) -> bool:
    marked = condition(pod, "DisruptionTarget")
    return bool(pod["metadata"].get("deletionTimestamp")) or (
        marked is not None and marked.get("status") == "True"
    )


def _leaving_since(unit: Unit, leaving: Sequence[Json]) -> Nanos | None:
    marks = [condition(pod, "DisruptionTarget") or {} for pod in leaving]
    instants = [instant_or_none(each.get("lastTransitionTime")) for each in marks]
    return min((each for each in instants if each is not None), default=None)


def _running(bound: Sequence[Json], nodes: tuple[str, ...], alone: bool) -> Standing:
    begun = [instant_or_none((pod.get("status") or {}).get("startTime")) for pod in bound]
    since = max((each for each in begun if each is not None), default=None)
    where = f"{counted(len(bound), 'pod')} on {_places(nodes)}"
    if len(bound) == 1 and alone:
        where = f"on {_places(nodes)}"
    starting = [pod for pod in bound if (pod.get("status") or {}).get("phase") != "Running"]
    if starting:
        those = "" if len(starting) == len(bound) else f" {len(starting)} of them"
        return Standing(State.STARTS, since, f"{where},{those} not running yet", nodes=nodes)
    return Standing(State.RUNS, since, where, nodes=nodes)


def _places(nodes: Sequence[str]) -> str:
    names = set(nodes)
    if len(names) > 3:
        return counted(len(names), "node")
    return f"{'node' if len(names) == 1 else 'nodes'} {listed(names)}"


def _without_pods(unit: Unit) -> Standing:
    asked = unit.asked
    if asked["kind"] == "PodGroup":
        minimum = str(minimum_of(asked) or 1)
        values = {"present": "0", "minimum": minimum}
        found = Diagnosis(Plane.SCHEDULING, Reason.GROUP_INCOMPLETE, values)
        since = instant_or_none(asked["metadata"].get("creationTimestamp"))
        return Standing(State.WAITS, since, reported=Reported(Plane.SCHEDULING, "", since, found))
    if unit.workload is not None and unit.workload["spec"].get("active") is False:
        text = "its Workload is deactivated (spec.active: false)"
        evicted = condition(unit.workload, "Evicted") or {}
        _, by_operator, why = str(evicted.get("reason", "")).partition("DeactivatedDueTo")
        if by_operator:
            text = f"its Workload was deactivated by the operator: {why}: {evicted.get('message')}"
        return Standing(State.STOPPED, text=text, remedy=let_run(unit.workload, "active", True))
    phase = str(((unit.gpu_workload or {}).get("status") or {}).get("phase", ""))
    root = unit.asked if job_kind_of(unit.asked) is not None else unit.root
    row = job_kind_of(root)
    if row is not None and row.suspend and is_suspended(row, root):
        queue = (root["metadata"].get("labels") or {}).get(QUEUE_NAME, "")
        if queue and unit.workload is None:
            text = f"LocalQueue {queue} has no Workload of it yet"
            if named := prebuilt_of(root):
                text = f"it names Workload {named}, which is not there, or not read yet"
            return Standing(State.UNKNOWN, text=text)
        text = f"it is suspended ({row.suspend}: true) and in no queue"
        if unit.workload is not None:
            text = f"it is suspended ({row.suspend}: true), though it has its quota"
        field = row.suspend.removeprefix("spec.")
        return Standing(State.STOPPED, text=text, remedy=let_run(root, field, False))
    if first(root, "spec.replicas") == 0:
        text = "it is scaled to zero (spec.replicas: 0)"
        former = (root["metadata"].get("annotations") or {}).get(FORMER_REPLICAS)
        replicas = integer_or_none(former) or 1
        return Standing(State.STOPPED, text=text, remedy=let_run(root, "replicas", replicas))
    if phase in ("Preempted", "Deleted"):
        at = instant_or_none(unit.gpu_workload and unit.gpu_workload["status"].get("finishedAt"))
        return Standing(State.GONE, at, "its pods have ended")
    return Standing(State.UNKNOWN, text="it has no pods")


def let_run(obj: Json, field: str, value: bool | int) -> Step:
    """Return the command that sets one field of a spec."""
    target = f"-n {namespace_of(obj)} patch {obj['kind'].lower()} {name_of(obj)}"
    written = json.dumps({"spec": {field: value}}, separators=(",", ":"))
    command = f"kubectl {target} --type merge -p '{written}'"
    return Step("Allow it to run:", command, f"spec.{field}")


def _ended(pods: Sequence[Json]) -> Nanos | None:
    instants = [
        instant_or_none(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for pod in pods
        for each in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    return max((each for each in instants if each is not None), default=None)
