"""Reads an answer from what happened in the overlay, so that it is what the planes did.

1. What starts has all that it needs on nodes here, and no Workload or gate that holds it.
2. A thing that waits states what the condition on it states.

Source: the design's "Intent log and executor"; specification 12, and of the quota plane, section 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubeworld.objects.paths import Json, first
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.jobs.model import JobKind
from reprieve.jobs.pods import group_of, total_of
from reprieve.jobs.table import job_kinds
from reprieve.kube.resource import PODS
from reprieve.whatif.happened import Run
from reprieve.whatif.questions.answer import GATED, Answer, Displaced, Outcome, Placed, Verdict
from reprieve.whatif.questions.asked import asks_of
from reprieve.whatif.questions.displaced import displaced
from reprieve.wording.kube_scheduler import (
    GROUP_SCHEDULED,
    GROUP_SCHEDULED_ALPHA,
    POD_SCHEDULED,
)

__all__ = ["answer_of"]

_KUEUE: Final = "kueue.x-k8s.io/"
_DEFAULT: Final = "default-scheduler"
_QUEUE_NAME: Final = f"{_KUEUE}queue-name"
_GROUPS: Final = ("scheduling.k8s.io", "podgroups")
#: Conditions that state why something does not start.
_WHY: Final = ("QuotaReserved", POD_SCHEDULED, GROUP_SCHEDULED, GROUP_SCHEDULED_ALPHA)


def answer_of(run: Run) -> Answer:
    """Return what a run states about what was submitted."""
    reading = _Reading(run)
    victims = tuple(displaced(run, reading.ours, reading.above))
    outcomes = tuple(
        outcome for obj in run.submitted if (outcome := reading.outcome(obj, victims)) is not None
    )
    answer = Answer(
        verdict=None,
        reason="",
        message="",
        outcomes=(),
        victims=victims,
        placement=tuple(reading.placement()),
        snapshot=run.overlay.snapshot,
        rest=run.rest,
        warnings=(
            *run.troubles,
            *run.log,
            *_unread(run),
            *_unplaced(run, outcomes, reading.other_schedulers()),
        ),
    )
    return answer.judged_again(outcomes)


def _unplaced(run: Run, outcomes: Iterable[Outcome], others: Sequence[str]) -> Iterator[str]:
    """Yield that a start is one of quota, where no plane here places these pods.

    `others`: schedulers that pods name and whose pods are not placed here.
    """
    starts = any(
        each.verdict in (Verdict.STARTS, Verdict.STARTS_WITH_VICTIMS) and not each.placed
        for each in outcomes
    )
    if not starts or not others:
        return
    how = "--controllers quota,scheduling decides it"
    if run.scheduler_names:
        how = f"{' '.join(f'--scheduler-name {each}' for each in others)} decides it"
    yield (
        "another scheduler places the pods: whether a node accepts them was not decided here, "
        f"and {how}"
    )


def _unread(run: Run) -> Iterator[str]:
    """Yield what the planes read and the copy does not have, as absence would be read as a fact."""
    for kind in sorted(run.overlay.unread):
        yield f"the planes read {kind}, of which the copy has none: the answer may be wrong"


class _Reading:
    """What a run made of what was submitted."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._overlay = run.overlay
        self._kinds: dict[tuple[str, str], JobKind] = {
            (kind.group, kind.kind): kind for kind in job_kinds()
        }
        changed = {change.object["metadata"]["uid"]: change.object for change in run.history}
        self.ours = {obj["metadata"]["uid"] for obj in run.submitted}
        self._owners = {
            uid: [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()]
            for uid, obj in changed.items()
        }
        # What came of it: owners come before what they own.
        for uid, owners in self._owners.items():
            if not self.ours.isdisjoint(owners):
                self.ours.add(uid)
            root = first(changed[uid], "spec.workloadRef.uid")
            if root in self.ours:
                self.ours.add(uid)
        self._alive = [
            obj for uid, obj in changed.items() if uid in self.ours and self._now(obj) is not None
        ]

    def outcome(self, obj: Json, victims: tuple[Displaced, ...]) -> Outcome | None:
        """Return what becomes of one object, None where nothing of it is to start."""
        group = str(obj["apiVersion"]).rpartition("/")[0]
        kind = self._kinds.get((group, obj["kind"]))
        if obj["kind"] == "Pod":
            if self._group_name(obj) in self._group_names():
                return None  # its group is reported
            return self._judged(obj, [self._now(obj) or obj], 1, victims)
        if (group, obj["kind"]) == (_GROUPS[0], "PodGroup"):
            return self._group(obj, victims)
        if kind is None:
            return None
        uid = obj["metadata"]["uid"]
        pods = [pod for pod in self._pods() if uid in self._above(pod)]
        return self._judged(obj, pods, len(pods), victims, kind)

    def other_schedulers(self) -> list[str]:
        """Return the schedulers that place pods of what was submitted, and do not run here."""
        pods = [pod for pod in self._pods() if not self._is_placed_here(pod)]
        return sorted({str(pod["spec"].get("schedulerName") or _DEFAULT) for pod in pods})

    def placement(self) -> Iterator[Placed]:
        """Yield where the pods of what was submitted are."""
        for pod in sorted(self._pods(), key=lambda each: each["metadata"]["name"]):
            if pod["spec"].get("nodeName"):
                yield Placed(pod["metadata"]["name"], pod["spec"]["nodeName"])

    def _judged(
        self,
        obj: Json,
        pods: list[Json],
        least: int,
        victims: tuple[Displaced, ...],
        kind: JobKind | None = None,
    ) -> Outcome:
        workloads = list(self._workloads(obj, pods))
        waiting_workload = next((w for w in workloads if not _is_true(w, "Admitted")), None)
        here = [pod for pod in pods if self._is_placed_here(pod)]
        placed = [pod for pod in here if pod["spec"].get("nodeName")]
        gated = next((pod for pod in pods if _gates(pod)), None)
        now = self._now(obj) or obj
        held = bool(kind is not None and kind.suspend and first(now, kind.suspend))
        if not workloads and not here and gated is None:
            return self._reported(
                obj, None, "NotDecided", self._why_not(obj, pods, kind if held else None)
            )
        short = len(placed) < min(least, len(here))
        verdict, reason, message, first_to_wait = Verdict.STARTS, "", "", None
        if victims:
            verdict = Verdict.STARTS_WITH_VICTIMS
        if waiting_workload is not None or short or held or gated is not None:
            verdict = Verdict.WAITS
            waiting = next((pod for pod in here if not pod["spec"].get("nodeName")), gated)
            reason, message = _stated(waiting_workload, waiting)
            if reason in ("", GATED) and gated is not None:
                reason, message = self._why_gated(gated)
            first_to_wait = waiting_workload or waiting
        return self._reported(
            obj,
            verdict,
            reason,
            message,
            workload=waiting_workload or next(iter(workloads), None),
            pods=pods,
            placed=len(placed),
            waiting=first_to_wait,
            kind=kind,
        )

    def _group(self, obj: Json, victims: tuple[Displaced, ...]) -> Outcome:
        metadata = obj["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        members = [
            pod
            for pod in self._overlay.all(PODS)
            if pod["metadata"].get("namespace", "") == namespace and self._group_name(pod) == name
        ]
        placed = [pod for pod in members if pod["spec"].get("nodeName")]
        least = _min_count(obj)
        now = self._now(obj) or obj
        if members and len(placed) >= least:
            verdict = Verdict.STARTS_WITH_VICTIMS if victims else Verdict.STARTS
            reason, message = "", ""
        else:
            verdict = Verdict.WAITS
            waiting = next((pod for pod in members if not pod["spec"].get("nodeName")), None)
            reason, message = _stated(now, waiting)
            if len(members) < least:
                reason = "GroupIncomplete"
                message = f"{len(members)} of its minimum of {least} pods are there"
        return self._reported(
            obj, verdict, reason, message, pods=members, placed=len(placed), waiting=obj
        )

    def _reported(
        self,
        obj: Json,
        verdict: Verdict | None,
        reason: str,
        message: str,
        *,
        workload: Json | None = None,
        pods: Sequence[Json] = (),
        placed: int = 0,
        waiting: Json | None = None,
        kind: JobKind | None = None,
    ) -> Outcome:
        metadata = obj["metadata"]
        return Outcome(
            kind=obj["kind"],
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            verdict=verdict,
            reason=reason,
            message=message,
            queue=first(workload, "spec.queueName") or "",
            cluster_queue=first(workload, "status.admission.clusterQueue") or "",
            priority=first(workload, "spec.priority"),
            pods=len(pods),
            placed=placed,
            pods_requested=_asked_in_full(workload),
            asks=asks_of(pods, kind, obj),
            condition=(reason, message),
            waiting=("", "") if waiting is None else (waiting["kind"], waiting["metadata"]["name"]),
        )

    def _why_not(self, obj: Json, pods: list[Json], held: JobKind | None) -> str:
        """State why no plane decides about it; `held`: its kind, where it is suspended."""
        if held is not None:
            text = f"it is suspended ({held.suspend}: true), and no queue has accepted it"
            frameworks, labels = self._run.frameworks, obj["metadata"].get("labels") or {}
            if _QUEUE_NAME in labels and frameworks is None:
                text += ": the quota plane was not queried (--controllers)"
            elif _QUEUE_NAME in labels and frameworks and held.framework not in frameworks:
                known = ", ".join(sorted(frameworks))
                text += (
                    f": {held.framework} is not in the integrations.frameworks that are assumed "
                    f"({known}); name the operator's configuration with --quota-config"
                )
            return text
        if not pods and first(obj, "spec.replicas") == 0:
            return "it requests no pods (spec.replicas: 0)"
        names = sorted({str(pod["spec"].get("schedulerName")) for pod in pods})
        asks = f" and its pods request {', '.join(names)}" if names else ""
        return f"no plane decides about it: no queue has accepted it{asks}"

    def _is_placed_here(self, pod: Json) -> bool:
        return pod["spec"].get("schedulerName") in self._run.scheduler_names

    def _pods(self) -> list[Json]:
        return [obj for obj in self._alive_now() if obj["kind"] == "Pod"]

    def _alive_now(self) -> Iterator[Json]:
        for obj in self._alive:
            found = self._now(obj)
            if found is not None:
                yield found

    def _now(self, obj: Json) -> Json | None:
        """Return an object as it is at the end, None where it is deleted."""
        resource = self._overlay.resource_of(str(obj["apiVersion"]), str(obj["kind"]))
        metadata = obj["metadata"]
        if resource is None:
            return None
        found = self._overlay.get(resource, metadata.get("namespace", ""), metadata["name"])
        return found if found is not None and found["metadata"]["uid"] == metadata["uid"] else None

    def _above(self, obj: Json) -> set[str]:
        """Return the uids of all that stand above an object."""
        return self.above(obj["metadata"]["uid"])

    def above(self, uid: str) -> set[str]:
        """Return the uids of all that stand above the object of this uid."""
        found: set[str] = set()
        left = [uid]
        while left:
            for owner in self._owners.get(left.pop(), ()):
                if owner not in found:
                    found.add(owner)
                    left.append(owner)
        return found

    def _workloads(self, obj: Json, pods: list[Json]) -> Iterator[Json]:
        """Yield the Workloads of a job, of its pods, or of the group that a pod is in."""
        uids = {obj["metadata"]["uid"], *(pod["metadata"]["uid"] for pod in pods)}
        groups = {name for each in (obj, *pods) if (name := group_of(each))}
        for each in self._alive_now():
            if each["kind"] != "Workload" or not each["apiVersion"].startswith(_KUEUE):
                continue
            metadata = each["metadata"]
            owners = {owner["uid"] for owner in metadata.get("ownerReferences") or ()}
            if metadata["name"] in groups or not uids.isdisjoint(owners):
                yield each

    def _why_gated(self, pod: Json) -> tuple[str, str]:
        """Return why a pod is held back that no Workload mentions."""
        name, total = group_of(pod), total_of(pod)
        members = [each for each in self._overlay.all(PODS) if name and group_of(each) == name]
        if len(members) < total:
            return Reason.GROUP_INCOMPLETE.value, f"{len(members)} of {total} pods are there"
        return GATED, f"it has the scheduling gate {', '.join(_gates(pod))}"

    def _group_names(self) -> set[str]:
        return {obj["metadata"]["name"] for obj in self._run.submitted if obj["kind"] == "PodGroup"}

    @staticmethod
    def _group_name(pod: Json) -> str:
        return str(first(pod, "spec.schedulingGroup.podGroupName") or "")


def _min_count(group: Json) -> int:
    policy = first(group, "spec.schedulingPolicy") or {}
    return int(first(policy, "gang.minCount") or 1)


def _asked_in_full(workload: Json | None) -> int | None:
    """Return the pods of a Workload that is admitted with fewer, None of any other."""
    given = first(workload, "status.admission.podSetAssignments") or ()
    asked = sum(each.get("count", 1) for each in first(workload, "spec.podSets") or ())
    return asked if given and sum(each.get("count", 0) for each in given) < asked else None


def _gates(pod: Json) -> list[str]:
    return [str(each.get("name")) for each in first(pod, "spec.schedulingGates") or ()]


def _is_true(obj: Json, type: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each["type"] == type and each["status"] == "True" for each in conditions)


def _stated(*objects: Json | None) -> tuple[str, str]:
    """Return reason and message of the first condition that states why something waits."""
    for obj in objects:
        for each in first(obj, "status.conditions") or ():
            if each["type"] in _WHY and each["status"] == "False" and each.get("message"):
                return each.get("reason") or "", each["message"]
    return "", ""
