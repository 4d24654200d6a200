"""Nodes on which capacity is kept for waiting pods, and why one of them accepts a pod no more.

The scheduler keeps a pod's nomination until the pods that leave for it have ended, also where the
node is cordoned or tainted meanwhile. Source: specification 12; the API's taints and tolerations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from reprieve.answers.sources import Json, Reading
from reprieve.kube.resource import NODES

__all__ = ["kept_nodes", "nominated_node", "refusal_of"]

_CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_KEEPING_OUT: Final = ("NoSchedule", "NoExecute")


def nominated_node(pod: Json) -> str:
    """Return the node on which capacity is kept for a pod, empty where there is none."""
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


async def kept_nodes(reading: Reading, pods: Iterable[Json]) -> dict[str, Json]:
    """Return the nodes on which capacity is kept for pods, by name, as far as they may be read."""
    names = sorted({name for pod in pods if (name := nominated_node(pod))})
    nodes = {name: await reading.get(NODES, "", name, quietly=True) for name in names}
    return {name: node for name, node in nodes.items() if node is not None}


def refusal_of(pods: Sequence[Json], nodes: Mapping[str, Json]) -> str:
    """Return why nodes no longer accept pods for which they keep capacity, empty where they do."""
    texts = (
        f"{name} {why}"
        for pod in pods
        if (name := nominated_node(pod)) in nodes
        for why in _refusals(pod, nodes[name])
    )
    return ", ".join(dict.fromkeys(texts))


def _refusals(pod: Json, node: Json) -> Iterator[str]:
    spec = node.get("spec") or {}
    if spec.get("unschedulable") and not _tolerates(pod, _CORDONED):
        yield "is cordoned"
    for taint in spec.get("taints") or ():
        if taint.get("effect") not in _KEEPING_OUT or _tolerates(pod, taint):
            continue
        if taint.get("key") != _CORDONED["key"]:
            yield f"has the taint {taint.get('key')}={taint.get('value', '')}:{taint['effect']}"


def _tolerates(pod: Json, taint: Json) -> bool:
    for each in pod["spec"].get("tolerations") or ():
        if each.get("effect") not in (None, "", taint["effect"]):
            continue
        exists = each.get("operator") == "Exists"
        if exists and each.get("key") in (None, "", taint["key"]):
            return True
        same = each.get("value", "") == taint.get("value", "")
        if not exists and each.get("key") == taint["key"] and same:
            return True
    return False
