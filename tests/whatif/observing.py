"""What became of a submission, read from the objects of a cluster alone, and what a plan said.

What is queued is compared by its job. Pods that controllers made have random names, so that of a
job the nodes are compared, with how many pods of which requests each has.

1. Nobody decides about what has no Workload, and no pods where pods are placed.
2. A pod starts when it has a node, a PodGroup when its minimum has, a job when nothing holds it and
   all its pods have; where nobody places pods, when nothing holds it.
3. Victims are those whom the new records of what was submitted name, and did not give up. Of a
   pod that was made anew for one of them, and was preempted, too, nothing is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from kubeworld.objects.paths import first
from reprieve.jobs.table import job_kinds
from reprieve.kube.client import Client
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import PODS, PREEMPTIONS, Resource
from reprieve.units.errors import ReprieveError
from reprieve.whatif.questions.answer import Answer, Verdict
from tests.quota_plane.site import WORKLOADS
from tests.whatif.playing import RESOURCES, Object, Playground

__all__ = ["STARTS", "WAITS", "Happened", "Seen", "happened", "planned", "seen"]

STARTS, WAITS, NOBODY = "starts", "waits", "nobody decides"
_BECOMES = {
    None: NOBODY,
    Verdict.STARTS: STARTS,
    Verdict.STARTS_WITH_VICTIMS: STARTS,
    Verdict.WAITS: WAITS,
    Verdict.NEVER_FITS: WAITS,
}
_SUSPEND = {(kind.api_version, kind.kind): kind.suspend for kind in job_kinds()}
_BETWEEN = (
    Resource("apps", "v1", "statefulsets", "StatefulSet"),
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
)


@dataclass(frozen=True)
class Happened:
    """What became of a submission, of a plan and of the cluster alike.

    Attributes:
        starts: kind and name of each thing that was submitted, and what becomes of it.
        victims: kind and name of who was preempted; pods of a submitted job count as that job.
        placement: how many pods of which thing are on which node.
    """

    starts: tuple[tuple[str, str, str], ...]
    victims: frozenset[tuple[str, str]]
    placement: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Seen:
    """What there was before a submission: names of records and pods, and whose each Workload is."""

    records: frozenset[str]
    pods: frozenset[str]
    owners: dict[str, tuple[str, str]]


def planned(answer: Answer | ReprieveError, submitted: Sequence[Object]) -> Happened:
    """Return what a plan says; what it refuses does not start."""
    if isinstance(answer, ReprieveError):
        told = {(each["kind"], each["metadata"]["name"]): WAITS for each in submitted}
        return Happened(_sorted(told), frozenset(), ())
    names = _names(submitted)
    victims = frozenset((each.kind, _of(each.name, names)) for each in answer.victims)
    told = {(each.kind, each.name): _BECOMES[each.verdict] for each in answer.outcomes}
    placed = Counter((_of(each.pod, names), each.node) for each in answer.placement)
    return Happened(_sorted(told), victims, _counted(placed))


async def seen(client: Client) -> Seen:
    """Return what is there before something is submitted."""
    records, pods = [
        frozenset(e["metadata"]["name"] for e in (await client.list(each, dict)).items)
        for each in (PREEMPTIONS, PODS)
    ]
    return Seen(records, pods, await _owners(client))


async def happened(played: Playground, submitted: Sequence[Object], before: Seen) -> Happened:
    """Return what happened, of each document."""
    found = _Found(played.planes, await _all(played.client))
    starts = {(each["kind"], each["metadata"]["name"]): found.becomes(each) for each in submitted}
    names = _names(submitted)
    placed = Counter(
        (_of(pod["metadata"]["name"], names), pod["spec"]["nodeName"])
        for obj in submitted
        for pod in found.pods_of(obj)
        if pod["spec"].get("nodeName")
    )
    told = [each async for each in _victims(played.client, before)]
    stems = {_stem(name) for kind, name in told if kind == "Pod" and name in before.pods}
    victims = frozenset(
        (kind, _of(name, names))
        for kind, name in told
        if kind != "Pod" or name in before.pods or _stem(name) not in stems
    )
    return Happened(_sorted(starts), victims, _counted(placed))


class _Found:
    """The objects of a cluster, and what belongs to whom."""

    def __init__(self, planes: str, objects: Sequence[Object]) -> None:
        self._places = "scheduling" in planes
        self._objects = objects
        self._below: dict[str, list[Object]] = {}
        for each in objects:
            for owner in each["metadata"].get("ownerReferences") or ():
                self._below.setdefault(owner["uid"], []).append(each)

    def becomes(self, obj: Object) -> str:
        now = self._now(obj)
        if now is None:
            return WAITS
        pods = self.pods_of(obj)
        uids = {each["metadata"]["uid"] for each in (now, *pods)}
        queued = any(
            each["kind"] == "Workload" for uid in uids for each in self._below.get(uid, ())
        )
        gated = any(pod["spec"].get("schedulingGates") for pod in pods)
        if not queued and not gated and obj["kind"] != "PodGroup" and not (pods and self._places):
            return NOBODY
        return STARTS if self._starts(obj) else WAITS

    def _starts(self, obj: Object) -> bool:
        now = self._now(obj)
        if now is None:
            return False
        if obj["kind"] == "PodGroup":
            least = int(first(obj, "spec.schedulingPolicy.gang.minCount") or 1)
            return sum(bool(e["spec"].get("nodeName")) for e in self._members(obj)) >= least
        suspend = _SUSPEND.get((obj["apiVersion"], obj["kind"]), "")
        if suspend and first(now, suspend):
            return False
        pods = self.pods_of(obj)
        if any(pod["spec"].get("schedulingGates") for pod in pods):
            return False
        if not self._places:
            # Without pods those of it were refused.
            return bool(pods)
        return bool(pods) and all(pod["spec"].get("nodeName") for pod in pods)

    def pods_of(self, obj: Object) -> list[Object]:
        """Return a pod itself, else the pods that stand below an object and do not leave."""
        now = self._now(obj)
        if now is None or obj["kind"] == "PodGroup":
            return []
        if obj["kind"] == "Pod":
            return [now]
        found, left = [], [now["metadata"]["uid"]]
        while left:
            for each in self._below.get(left.pop(), ()):
                if each["kind"] != "Pod":
                    left.append(each["metadata"]["uid"])
                elif not each["metadata"].get("deletionTimestamp"):
                    found.append(each)
        return found

    def _now(self, obj: Object) -> Object | None:
        name = obj["metadata"]["name"]
        return next(
            (e for e in self._objects if (e["kind"], e["metadata"]["name"]) == (obj["kind"], name)),
            None,
        )

    def _members(self, group: Object) -> list[Object]:
        name = group["metadata"]["name"]
        return [
            each
            for each in self._objects
            if each["kind"] == "Pod" and first(each, "spec.schedulingGroup.podGroupName") == name
        ]


async def _all(client: Client) -> list[Object]:
    found: list[Object] = []
    for resource in dict.fromkeys((*RESOURCES.values(), *_BETWEEN, WORKLOADS)):
        try:
            page = await client.list(resource, dict)
        except NotFound:
            continue
        found += [{**e, "kind": resource.kind} for e in page.items]
    return found


async def _owners(client: Client) -> dict[str, tuple[str, str]]:
    """Return whose each Workload is; that of a group of pods is told by its own name."""
    try:
        workloads = (await client.list(WORKLOADS, dict)).items
    except NotFound:
        return {}
    found = {}
    for each in workloads:
        for owner in each["metadata"].get("ownerReferences") or ():
            if owner.get("controller") or owner["kind"] != "Pod":
                found[each["metadata"]["name"]] = (owner["kind"], owner["name"])
                break
    return found


async def _victims(client: Client, before: Seen) -> AsyncIterator[tuple[str, str]]:
    owners = before.owners | await _owners(client)
    for record in (await client.list(PREEMPTIONS, dict)).items:
        phase = (record.get("status") or {}).get("phase")
        if record["metadata"]["name"] in before.records or phase == "Abandoned":
            continue
        for victim in record["spec"]["victims"]:
            root = victim["root"]
            own = (root["kind"], root["name"])
            yield owners.get(root["name"], own) if root["kind"] == "Workload" else own


def _sorted(told: Mapping[tuple[str, str], str]) -> tuple[tuple[str, str, str], ...]:
    return tuple((kind, name, starts) for (kind, name), starts in sorted(told.items()))


def _names(submitted: Sequence[Object]) -> list[str]:
    return sorted((each["metadata"]["name"] for each in submitted), key=len, reverse=True)


def _of(pod: str, names: Sequence[str]) -> str:
    """Return what was submitted under the longest name that a pod's begins with."""
    return next((name for name in names if pod == name or pod.startswith(f"{name}-")), pod)


def _stem(pod: str) -> str:
    """Return the part of a pod's name that those made of the same template share."""
    return pod.rpartition("-")[0]


def _counted(placed: Counter[tuple[str, str]]) -> tuple[tuple[str, str, int], ...]:
    return tuple(sorted((of, node, count) for (of, node), count in placed.items()))
