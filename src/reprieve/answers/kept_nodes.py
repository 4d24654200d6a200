"""Nodes on which capacity is kept for waiting pods, and why one of them accepts a pod no more.

The scheduler keeps a pod's nomination until the pods that leave for it have ended, also where the
node is cordoned, tainted, labelled otherwise or deleted meanwhile, or has lost devices. Source:
specification 12; the API's taints, tolerations and node affinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kubeworld.objects.paths import first
from kubeworld.objects.selectors import matches_node_terms, tolerates
from kubeworld.units.quantities import InvalidQuantity
from reprieve.answers.quantities import amounts
from reprieve.answers.sources import Json, Reading
from reprieve.intake.cluster.requests import amount_in_base_units
from reprieve.kube.resource import NODES
from reprieve.whatif.questions.asked import requests_of_spec

__all__ = ["kept_nodes", "nominated_node", "refusal_of", "refusing"]

_CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_KEEPING_OUT: Final = ("NoSchedule", "NoExecute")
_REQUIRED: Final = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def nominated_node(pod: Json) -> str:
    """Return the node on which capacity is kept for a pod, empty where there is none."""
    return str((pod.get("status") or {}).get("nominatedNodeName") or "")


async def kept_nodes(reading: Reading, pods: Iterable[Json]) -> dict[str, Json]:
    """Return the nodes on which capacity is kept for pods, by name, as far as they may be read.

    One that was deleted is an empty object.
    """
    found: dict[str, Json] = {}
    for name in sorted({name for pod in pods if (name := nominated_node(pod))}):
        node = await reading.get(NODES, "", name, quietly=True)
        if node is not None:
            found[name] = node
        elif await reading.listed((NODES,), "", quietly=True):
            found[name] = {}  # others can be read
    return found


def refusal_of(pods: Sequence[Json], nodes: Mapping[str, Json]) -> str:
    """Return why nodes no longer accept pods for which they keep capacity, empty where they do."""
    return ", ".join(dict.fromkeys(f"{name} {why}" for name, why in _all_refusals(pods, nodes)))


def refusing(pods: Sequence[Json], nodes: Mapping[str, Json]) -> list[str]:
    """Return the nodes that exist and no longer accept pods for which they keep capacity."""
    return list(dict.fromkeys(name for name, _ in _all_refusals(pods, nodes) if nodes[name]))


def _all_refusals(pods: Sequence[Json], nodes: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for pod in pods:
        if (name := nominated_node(pod)) in nodes:
            yield from ((name, why) for why in _refusals(pod, nodes[name]))


def _refusals(pod: Json, node: Json) -> Iterator[str]:
    if not node:
        yield "does not exist any more"
        return
    spec, tolerations = node.get("spec") or {}, pod["spec"].get("tolerations") or ()
    if spec.get("unschedulable") and not tolerates(tolerations, _CORDONED):
        yield "is cordoned"
    for taint in spec.get("taints") or ():
        if taint.get("effect") not in _KEEPING_OUT or tolerates(tolerations, taint):
            continue
        if taint.get("key") != _CORDONED["key"]:
            yield f"has the taint {taint.get('key')}={taint.get('value', '')}:{taint['effect']}"
    yield from _unlabelled(pod, node["metadata"])
    yield from _lost(pod, node)


def _unlabelled(pod: Json, metadata: Json) -> Iterator[str]:
    """Yield the labels of the pod's selector that the node lost, and whether affinity fails."""
    labels = metadata.get("labels") or {}
    for key, value in sorted((pod["spec"].get("nodeSelector") or {}).items()):
        if labels.get(key) != value:
            yield f"lacks the label {key}={value}"
    required = first(pod["spec"], _REQUIRED)
    terms = (required or {}).get("nodeSelectorTerms") or ()
    if required is not None and not matches_node_terms(terms, labels, metadata["name"]):
        yield "does not match the pod's node affinity"


def _lost(pod: Json, node: Json) -> Iterator[str]:
    """Yield what the node has less of than the pod requests, as after a device failed."""
    allocatable = first(node, "status.allocatable")
    for name, asked in sorted(requests_of_spec(pod["spec"]).items() if allocatable else ()):
        try:
            has = amount_in_base_units(name, allocatable.get(name, "0"))
        except InvalidQuantity:
            continue
        if has < asked:
            yield f"has {amounts({name: has}) or 'none'} of {amounts({name: asked})}"
