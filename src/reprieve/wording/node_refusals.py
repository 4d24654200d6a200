"""By what nodes refuse a pod, in Kubernetes' words, and what to do about it.

The first clause counts its nodes of all nodes, the others count theirs. Nothing is cut: each taint,
label, claim and resource stands with its name, and each size with its figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubeworld.units.quantities import quantity_text
from reprieve.engine.diagnosis.refusals import BY_PODS, GLOBAL, NodeRefusal, Refused
from reprieve.engine.placement.reasons import Reason, Rejection
from reprieve.wording.rejections import reason_text

__all__ = ["behind_text", "is_of_cluster", "refusals_step", "refusals_text", "toleration_text"]

_MOST: Final = 4  # clauses of one sentence


def is_of_cluster(refusals: Sequence[NodeRefusal]) -> bool:
    """Return whether the first clause stands by itself, as it speaks of the whole cluster."""
    return bool(refusals) and refusals[0].everywhere and refusals[0].kind in GLOBAL


def refusals_text(refusals: Sequence[NodeRefusal]) -> str:
    """Return by what nodes refuse a pod, in clauses; empty where nothing is known."""
    clauses = [_clause(each, first=not place) for place, each in enumerate(refusals[:_MOST])]
    more = sum(each.nodes for each in refusals[_MOST:])
    if more:
        clauses.append(f"{more} for other reasons")
    return "; ".join(clauses)


def behind_text(refusals: Sequence[NodeRefusal]) -> str:
    """Return which nodes would have capacity but for what keeps the pod away; empty without any."""
    said = []
    for each in refusals:
        if each.kind is Refused.PORT:
            said.append(_clause(each, first=True))
        elif each.room and each.kind not in BY_PODS:
            nodes = f"{each.room} {'node' if each.room == 1 else 'nodes'}"
            said.append(f"there is capacity on {nodes} {_with(each)}")
    return "; ".join(said[:_MOST])


def refusals_step(refusals: Sequence[NodeRefusal]) -> str:
    """Return what to do against the first refusal for which something can be done; or nothing."""
    return next(filter(None, map(_step, refusals)), "")


def toleration_text(taint: str) -> str:
    """Return the toleration of a taint `key=value:effect`, as YAML in one line."""
    named, _, effect = taint.rpartition(":")
    key, _, value = named.partition("=")
    if not value:
        return f"{{key: {key}, operator: Exists, effect: {effect}}}"
    return f"{{key: {key}, operator: Equal, value: {_scalar(value)}, effect: {effect}}}"


def _scalar(value: str) -> str:
    """Return a value that YAML reads as text."""
    plain = value.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "~")
    return value if plain and not value.replace(".", "").isdigit() else f'"{value}"'


def _clause(refusal: NodeRefusal, *, first: bool) -> str:
    subject = refusal.subject
    if refusal.everywhere:
        match refusal.kind:
            case Refused.CLAIM:
                return _claim(refusal)
            case Refused.RESOURCE:
                return f"no node has {subject}{_instead(refusal)}"
            case Refused.LABEL:
                return f"no node has the label {subject}, {_labels(refusal, subject)}"
            case Refused.AFFINITY:
                return f"no node meets its node affinity ({subject}), {_labels(refusal, '')}"
            case Refused.SIZE:
                asks, most = _figures(refusal)
                largest = f"the largest node, {refusal.largest}, has {most}"
                return f"it requests {asks} {subject} a pod, {largest}"
            case Refused.NODE_NAME:
                return f"there is no node {subject}"
    one = refusal.nodes == 1
    who = str(refusal.nodes)
    if first:
        who = f"{refusal.nodes} of {_count(refusal.total)}"
    return f"{who} {_verb(refusal, one)}"


def _verb(refusal: NodeRefusal, one: bool) -> str:
    """Return the text about the nodes, in the singular or the plural."""
    subject, has, be, do = (
        refusal.subject,
        "has" if one else "have",
        "is" if one else "are",
        "does" if one else "do",
    )
    names = (
        f": {', '.join(refusal.names)}{' and more' if refusal.nodes > len(refusal.names) else ''}"
    )
    match refusal.kind:
        case Refused.TAINT:
            return f"{has} the taint {subject}, which it does not tolerate"
        case Refused.NOT_READY:
            return f"{be} {subject.replace('-', ' ')}{names}"
        case Refused.CORDONED:
            return f"{be} cordoned{names}"
        case Refused.LABEL:
            return f"{do} not have the label {subject}"
        case Refused.AFFINITY:
            return f"{do} not meet its node affinity ({subject})"
        case Refused.NODE_NAME:
            return f"{be} not the node that it names ({subject})"
        case Refused.SIZE:
            asks, most = _figures(refusal)
            which = "that node" if one else "the largest of them"
            size = f"it requests {asks} {subject}, {which}, {refusal.largest}, has {most}"
            return f"{be} too small: {size}"
        case Refused.PORT:
            return f"{has} host port {subject} in use"
        case Refused.VOLUME:
            return f"{do} not reach its PersistentVolume {subject}"
        case Refused.SPREAD_LABEL:
            return f"{has} no label {subject}, which its topology spread requires"
        case Refused.AFFINITY_LABEL:
            return f"{has} no label {subject}, which its pod affinity requires"
        case Refused.NO_PARTNER:
            return f"{be} refused by its pod affinity: no running pod has {subject}"
        case Refused.TOGETHER:
            return f"{be} refused by {subject}"
        case _:
            text = "" if refusal.reason is None else reason_text(refusal.reason)
            return f"refused: {text.removeprefix('node(s) ')}"


def _with(refusal: NodeRefusal) -> str:
    """Return what nodes with capacity have that keeps the pod away."""
    match refusal.kind:
        case Refused.TAINT:
            return f"with the taint {refusal.subject}, which it does not tolerate"
        case Refused.CORDONED:
            return f"cordoned: {', '.join(refusal.names)}"
        case Refused.NOT_READY:
            return f"that {refusal.subject.replace('-', ' ')}: {', '.join(refusal.names)}"
        case Refused.LABEL:
            return f"without the label {refusal.subject}"
        case Refused.AFFINITY:
            return f"outside its node affinity ({refusal.subject})"
        case _:
            return f"that refuse it: {', '.join(refusal.names)}"


def _step(refusal: NodeRefusal) -> str:
    subject = refusal.subject
    match refusal.kind:
        case Refused.CLAIM:
            return _claim_step(refusal)
        case Refused.RESOURCE:
            other = f" {refusal.there[0]} instead of" if len(refusal.there) == 1 else ""
            if other:
                return f"Request{other} {subject}, or add nodes that have {subject}."
            return f"Add nodes that have {subject}, or do not request it."
        case Refused.SIZE:
            most = quantity_text(subject, refusal.most)
            return f"Request at most {most} {subject} a pod, or add a larger node."
        case Refused.TAINT:
            return f"Add {toleration_text(subject)} to `tolerations` of the pod's spec."
        case Refused.CORDONED:
            return f"Allow pods on the node again: `kubectl uncordon {refusal.names[0]}`."
        case Refused.NOT_READY:
            why = "Find out why the node is not ready"
            return f"{why}: `kubectl describe node {refusal.names[0]}`."
        case Refused.LABEL:
            label = f"`kubectl label node {refusal.names[0]} {subject}`"
            if refusal.imposed:
                return f"{label}, or have `nodeLabels` of its queue's ResourceFlavor corrected."
            return f"Drop {subject} from `nodeSelector`, or: {label}."
        case Refused.AFFINITY:
            return f"Change the required node affinity ({subject}), or label nodes so."
        case Refused.NODE_NAME:
            return f"Name a node that exists, or drop the requirement for {subject}."
        case Refused.PORT:
            return f"Use another `hostPort` than {subject}, or none."
        case Refused.VOLUME:
            return (
                f"Add nodes that reach PersistentVolume {subject}, or use a claim of another one."
            )
        case Refused.SPREAD_LABEL:
            return f"Label nodes with {subject}, or drop it from `topologySpreadConstraints`."
        case Refused.AFFINITY_LABEL:
            return f"Label nodes with {subject}, or use another `topologyKey` in `podAffinity`."
        case Refused.NO_PARTNER:
            return f"Start a pod that has {subject}, or drop that term from `podAffinity`."
        case _ if refusal.reason is not None and refusal.reason.rejection is Rejection.DEVICES:
            return _device_step(refusal.reason.subject)
        case _:
            return ""


def _device_step(text: str) -> str:
    """Return what to do about a claim of devices, by what the scheduler states of it."""
    if text.endswith("not found"):
        return "Create that claim, or correct its name in `resourceClaims` of the pod's spec."
    _, _, missing = text.partition("device class ")
    if missing.endswith(" does not exist"):
        name = missing.removesuffix(" does not exist")
        return f"Create DeviceClass {name}, or correct `deviceClassName` in the claim's requests."
    if "selector #" in text or text.endswith("is not supported"):
        return "Correct the DeviceClass or the claim."
    return ""


def _claim(refusal: NodeRefusal) -> str:
    reason = refusal.reason
    assert reason is not None, "claims are refused by the scheduler's own reason"
    name = f"PersistentVolumeClaim {refusal.subject}"
    match reason.rejection:
        case Rejection.CLAIM_MISSING:
            return f"{name} does not exist"
        case Rejection.CLAIM_NOT_MADE:
            return f"{name} was not created yet by the ephemeral volume controller"
        case Rejection.CLAIM_DELETED:
            return f"{name} is being deleted"
        case Rejection.CLAIM_LOST:
            namespace, claim, volume = [*refusal.subject.split("/"), "", ""][:3]
            return (
                f"PersistentVolumeClaim {namespace}/{claim} is bound to PersistentVolume {volume}, "
                "which does not exist"
            )
        case Rejection.CLAIM_UNBOUND:
            namespace, claim, kind = [*refusal.subject.split("/"), ""][:3]
            name = f"PersistentVolumeClaim {namespace}/{claim}"
            why = f"StorageClass {kind} does not exist" if kind else "it has no volume yet"
            return f"{name} is not bound: {why}"
        case _:
            return reason_text(reason)


def _claim_step(refusal: NodeRefusal) -> str:
    reason = refusal.reason or Reason(Rejection.CLAIM_UNBOUND)
    namespace, claim, other = [*refusal.subject.split("/"), "", ""][:3]
    match reason.rejection:
        case Rejection.CLAIM_MISSING:
            return (
                f"Create PersistentVolumeClaim {claim} in namespace {namespace}, or correct "
                "`persistentVolumeClaim.claimName` in the pod's volumes."
            )
        case Rejection.CLAIM_UNBOUND if other:
            return (
                f"Create StorageClass {other}, or create the claim with a `storageClassName` that "
                "exists."
            )
        case Rejection.CLAIM_UNBOUND:
            return f"See why it is not bound: `kubectl -n {namespace} describe pvc {claim}`."
        case _:
            return (
                f"See the claim: `kubectl -n {namespace} describe pvc {claim.partition('/')[0]}`."
            )


def _instead(refusal: NodeRefusal) -> str:
    if "/" not in refusal.subject:
        return ""
    if refusal.there:
        return f" (this cluster has {', '.join(refusal.there)})"
    what = "GPUs" if refusal.subject.rpartition("/")[2].startswith("gpu") else "devices"
    return f" (no node of this cluster has {what})"


def _labels(refusal: NodeRefusal, label: str) -> str:
    """Return which labels nodes have instead."""
    if refusal.there:
        return f"nodes have {', '.join(refusal.there)}"
    return f"and no node has a label {label.partition('=')[0]}" if label else "and none is near it"


def _figures(refusal: NodeRefusal) -> Iterator[str]:
    return (quantity_text(refusal.subject, each) for each in (refusal.asks, refusal.most))


def _count(nodes: int) -> str:
    return f"{nodes:,} {'node' if nodes == 1 else 'nodes'}"
