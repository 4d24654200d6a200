"""Where the pending pods of a demand are placed once the victims' pods have left (fit Node).

Looks at every resource that a pod requests, and at the nodes that its selectors and tolerations
admit; affinity between pods, spread, volumes and devices are the scheduler's matter. Sound, not
complete: every placement returned is valid, and a search that is cut off after `LIMIT` tries counts
as no fit. Pods are placed hardest first: fewest admitted nodes, largest request, name; nodes are
tried tightest first, then by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kubeworld.objects.pods import OVER
from reprieve.engine.idle.model import PodRow, Workload
from reprieve.units.ids import Uid

__all__ = ["Room", "admits", "leave", "pending_pods", "place"]

LIMIT: Final = 2_000

Room = dict[str, dict[str, int]]  # node -> resource name -> amount; values may be negative


def pending_pods(workload: Workload) -> tuple[PodRow, ...]:
    """Return the pods of a demand that wait for a node and request GPUs, by name."""
    return tuple(
        sorted(
            (
                pod
                for pod in workload.pods
                if pod.phase == "Pending" and pod.node is None and pod.live and pod.gpus
            ),
            key=lambda pod: (pod.name, pod.uid),
        )
    )


def leave(room: Room, pods: Iterable[PodRow]) -> None:
    """Add to `room` what `pods` hold on their nodes; pods elsewhere free nothing."""
    for pod in pods:
        node = room.get(pod.node or "")
        if node is not None and pod.phase not in OVER:
            for name, count in pod.amounts.items():
                node[name] = node.get(name, 0) + count


def admits(room: Mapping[str, Mapping[str, int]], node: str, pod: PodRow) -> bool:
    """Return whether the node admits the pod and has capacity for it alone."""
    if pod.nodes is not None and node not in pod.nodes:
        return False
    amounts = room[node]
    return all(
        amounts.get(name, 0) >= count
        for asked in (pod.gpus, pod.asks)
        for name, count in asked.items()
    )


def place(
    pods: Sequence[PodRow], room: Mapping[str, Mapping[str, int]]
) -> tuple[tuple[Uid, str], ...] | None:
    """Return a node for every pod, in the order of `pods`; None when none was found."""
    free = {
        node: dict(amounts)
        for node, amounts in room.items()
        if any(admits(room, node, pod) for pod in pods)
    }
    ordered = sorted(pods, key=lambda pod: _hardness(pod, len(free)))
    chosen = _search(ordered, free)
    return None if chosen is None else tuple((pod.uid, chosen[pod.uid]) for pod in pods)


def _search(pods: Sequence[PodRow], free: Room) -> dict[Uid, str] | None:
    """Return a node by pod; None when there is none, or when the tries have run out.

    Depth first with an explicit stack: a demand may have more pods than Python has frames.
    """
    # Whether this pod and all after it fit any node: then nodes with equal capacity are the same.
    anywhere = [True] * (len(pods) + 1)
    for index in reversed(range(len(pods))):
        anywhere[index] = anywhere[index + 1] and pods[index].nodes is None
    tries = max(LIMIT, 2 * len(pods))
    chosen: dict[Uid, str] = {}
    stack: list[Iterator[str]] = []
    while len(chosen) < len(pods):
        index = len(chosen)
        pod = pods[index]
        if len(stack) == index:
            stack.append(_candidates(pod, free, distinct=anywhere[index]))
        node = next(stack[index], None)
        if node is not None:
            tries -= 1
            if tries < 0:
                return None
            _move(free[node], pod, -1)
            chosen[pod.uid] = node
            continue
        stack.pop()
        if not chosen:
            return None
        back = pods[index - 1]
        _move(free[chosen.pop(back.uid)], back, 1)
    return chosen


def _candidates(pod: PodRow, free: Room, *, distinct: bool) -> Iterator[str]:
    """Yield the nodes that accept the pod, tightest first; `distinct`: of equal ones only one."""
    names = [node for node in free if admits(free, node, pod)]
    names.sort(key=lambda node: (sum(free[node].get(name, 0) for name in pod.gpus), node))
    if not distinct:
        return iter(names)
    kept: dict[tuple[tuple[str, int], ...], str] = {}
    for node in names:
        kept.setdefault(tuple(sorted(free[node].items())), node)
    return iter(kept.values())


def _move(room: dict[str, int], pod: PodRow, sign: int) -> None:
    for name, count in pod.amounts.items():
        room[name] = room.get(name, 0) + sign * count


def _hardness(pod: PodRow, nodes: int) -> tuple[int, int, str, Uid]:
    admitted = nodes if pod.nodes is None else len(pod.nodes)
    return (admitted, -sum(pod.gpus.values()), pod.name, pod.uid)
