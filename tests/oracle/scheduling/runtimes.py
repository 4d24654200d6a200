"""Who has just started and asks not to be preempted: the option `maxMinRuntime`, in seconds.

`now` stands in the cluster's objects, as do `priorityClasses`. Everything is computed anew for each
pod. What a pod belongs to, and how, is told by `units`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.oracle.scheduling import objects
from tests.oracle.scheduling.harm import instant
from tests.oracle.scheduling.objects import Cluster, Object, namespace_of

SIZES = {"s": 1, "m": 60, "h": 3600}


def seconds_of(text: str) -> int | None:
    """A duration of one number and one unit; None for anything else."""
    number, unit = text[:-1], text[-1:]
    return int(number) * SIZES[unit] if number.isdigit() and unit in SIZES else None


def asked(pod: Object, holders: Iterable[Object], cluster: Cluster) -> int:
    """What counts for a pod: of these, its class and its namespace the first that says it.

    `holders`: its group and those above, or itself.
    """
    around = (
        cluster.one("priorityClasses", pod["spec"].get("priorityClassName") or ""),
        cluster.one("namespaces", namespace_of(pod)),
    )
    for each in (*holders, *around):
        said = seconds_of(objects.annotation(each, "preempt-min-runtime")) if each else None
        if said is not None:
            return min(said, int(cluster.objects["maxMinRuntime"]))
    return 0


def young(work: Iterable[Object], seconds: int, cluster: Cluster) -> bool:
    """Whether the first of these pods that has started did so less than this ago."""
    starts = [instant((pod.get("status") or {}).get("startTime")) for pod in work]
    known = [start for start in starts if start is not None]
    return bool(known) and min(known) <= cluster.objects["now"] < min(known) + seconds
