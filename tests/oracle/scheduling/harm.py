"""What is lost with work that is preempted, and how much harm a set of victims does.

The option `harmOrder`: `now` and `maxLostWork` (seconds) stand in the cluster's objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from tests.oracle.scheduling import objects
from tests.oracle.scheduling.objects import Cluster, Object, name_of, namespace_of

IDLE = -1  # less than nothing
FRESH = 180  # seconds for which a measurement holds
Harm = tuple[float, ...]


def instant(text: str | None) -> int | None:
    """Unix seconds, None for nothing and for what is no instant."""
    try:
        return None if not text else int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return None


def idle(pod: Object, cluster: Cluster) -> bool:
    """Whether fresh measurements say that the pod's work is idle."""
    for work in cluster.every("gpuWorkloads"):
        status = work["status"]
        names = [each["podName"] for each in status.get("trackedPods") or ()]
        measured = instant(status.get("lastMetricsUpdate")) or 0
        fresh = 0 <= cluster.objects["now"] - measured <= FRESH
        mine = namespace_of(work) == namespace_of(pod) and name_of(pod) in names
        if status.get("phase") == "Idle" and fresh and mine:
            return True
    return False


def lost_with(pod: Object, cluster: Cluster) -> int:
    """Device-seconds since the last checkpoint or, where nobody says one, since the start."""
    if idle(pod, cluster):
        return IDLE
    now, most = int(cluster.objects["now"]), int(cluster.objects.get("maxLostWork", 3600))
    group = str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")
    holders = [pod, cluster.one("podGroups", group, namespace_of(pod)) or pod]
    said = [instant(objects.annotation(each, "last-checkpoint")) or 0 for each in holders]
    started = instant((pod.get("status") or {}).get("startTime"))
    started = now if started is None else started
    silent = not 0 < max(said) <= now
    seconds = min(now - started, most) if silent else now - max(started, *said)
    devices = sum(
        count for name, count in objects.requests_of(pod).items() if "/" in name and count > 0
    )
    return max(seconds, 0) * devices


def lost_together(pods: Iterable[Object], cluster: Cluster) -> int:
    """Device-seconds lost with a unit, which is idle when all of its pods are."""
    lost = [lost_with(pod, cluster) for pod in pods]
    return IDLE if set(lost) == {IDLE} else sum(each for each in lost if each != IDLE)


def of_victims(pods: Sequence[Object], violations: int, cluster: Cluster) -> Harm:
    """Section 8.6 on whole sets: the first difference decides, less is better.

    `pods`: the most important unit's first.
    """
    if not pods:
        return (violations, float("-inf"))
    own = [objects.own_priority(p) for p in pods]
    lost = 0
    if cluster.objects.get("harmOrder"):
        lost = sum(max(lost_with(p, cluster), 0) for p in pods)
    starts = [
        instant((p.get("status") or {}).get("startTime")) or float("inf")
        for p in pods
        if objects.own_priority(p) == max(own)
    ]
    total = sum(priority + 2147483648 for priority in own)
    return (violations, own[0], lost, total, len(own), -min(starts))
