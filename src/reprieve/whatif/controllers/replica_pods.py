"""Pods of what runs for ever: made when it is created, and again when one of them is lost.

1. A ReplicaSet has as many pods as it says; a Deployment that is created gets one of its template.
2. A StatefulSet has pods with ordinals: all at once where it is `Parallel`, else each when those
   before it are ready.
3. A LeaderWorkerSet that is created gets a StatefulSet of its leaders and one of the workers of
   each group, all `Parallel`: by these the scheduler spreads its pods.

Their status is not written: no decision reads it. Source: the controllers of Kubernetes 1.37;
`LeaderWorkerSet` of leaderworkerset.x-k8s.io/v1 for names, labels and annotations.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kubeworld.kinds.families import FAMILIES, Child, children
from kubeworld.objects.owners import child, owner_reference
from kubeworld.objects.paths import Json, first
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.controllers.made_pods import MadePods
from reprieve.whatif.controllers.owned_pods import OwnedPods, Tally
from reprieve.whatif.controllers.pod_claims import PodClaims
from reprieve.whatif.controllers.pod_templates import pod_of
from reprieve.whatif.copy.overlay import Overlay

__all__ = ["ReplicaPods"]

_REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
_STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
_DEPLOYMENT, _REPLICA_SET = ("apps", "Deployment"), ("apps", "ReplicaSet")
_STATEFUL_SET = ("apps", "StatefulSet")
_LEADER_WORKER_SET = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
_HASH: Final = "pod-template-hash"
_LEADER_WORKER_SETS: Final = "leaderworkersets.leaderworkerset.x-k8s.io"


@dataclass(slots=True)
class _Done:
    """Below which number each pod of a set is there, and ready where the next one waits for it.

    `losses`: of its pods until then; `shape`: what the numbers mean.
    """

    losses: int
    shape: int
    number: int = 0


class ReplicaPods:
    """Makes the pods of sets, as many as may be made; `owned`: those that there are."""

    def __init__(
        self, overlay: Overlay, owned: OwnedPods, made: MadePods, claims: PodClaims
    ) -> None:
        self._overlay = overlay
        self._claims = claims
        self._owned = owned
        self._made = made
        self._done: dict[str, _Done] = {}  # by the owner's uid
        self._makers: dict[tuple[str, str], Callable[[Json], None]] = {
            _DEPLOYMENT: self._deployment,
            _REPLICA_SET: self._replica_set,
            _STATEFUL_SET: self._stateful_set,
            _LEADER_WORKER_SET: self._leader_worker_set,
        }

    def makes(self, group: str, kind: str) -> bool:
        """Tell whether pods of this kind are made here."""
        return (group, kind) in self._makers

    def reconcile(self, owner: Json) -> None:
        """Make the pods that an owner lacks."""
        if owner["metadata"].get("deletionTimestamp"):
            return
        group = str(owner["apiVersion"]).rpartition("/")[0]
        self._makers[group, owner["kind"]](owner)

    def _deployment(self, owner: Json) -> None:
        """Make its ReplicaSet; one that has any is left to what its controller did before."""
        metadata, spec = owner["metadata"], owner.get("spec") or {}
        if spec.get("paused"):
            return  # its controller rolls nothing out until it is let go
        uid = metadata["uid"]
        known = self._overlay.all(_REPLICA_SETS)
        if any(ref["uid"] == uid for each in known for ref in _owners(each)):
            return
        template = copy.deepcopy(spec.get("template") or {})
        text = self._overlay.suffix(_REPLICA_SETS, metadata.get("namespace", ""), uid)
        labels = {**(first(template, "metadata.labels") or {}), _HASH: text}
        template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
        selector = copy.deepcopy(spec.get("selector") or {})
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH: text}
        replicas = spec.get("replicas")
        made = {
            "metadata": {
                "name": f"{metadata['name']}-{text}",
                "namespace": metadata.get("namespace", ""),
                "labels": labels,
                "ownerReferences": [owner_reference(owner)],
            },
            "spec": {"selector": selector, "template": template},
        }
        if replicas is not None:
            made["spec"]["replicas"] = replicas
        self._overlay.create(_REPLICA_SETS, made)

    def _replica_set(self, owner: Json) -> None:
        metadata = owner["metadata"]
        here = self._owned.of(metadata["uid"]).active
        stem = f"{metadata['name']}-"
        wanted = _replicas(owner)
        for _ in range(self._made.allowed(owner, wanted, wanted - here)):
            suffix = self._overlay.suffix(PODS, metadata.get("namespace", ""), stem)
            self._add(owner, _template(owner), stem + suffix)

    def _stateful_set(self, owner: Json) -> None:
        metadata = owner["metadata"]
        tally = self._owned.of(metadata["uid"])
        start = int(first(owner, "spec.ordinals.start") or 0)
        ordered = first(owner, "spec.podManagementPolicy") != "Parallel"
        wanted, lacking = _replicas(owner), _replicas(owner) - tally.pods
        if not ordered and lacking > 0 and not self._made.allowed(owner, wanted, lacking):
            return
        done = self._done_of(owner, tally, start)
        for ordinal in range(max(start, done.number), start + wanted):
            name = f"{metadata['name']}-{ordinal}"
            if name not in tally.names:
                if ordered and not self._made.allowed(owner, wanted, 1):
                    return
                labels = {
                    "apps.kubernetes.io/pod-index": str(ordinal),
                    "statefulset.kubernetes.io/pod-name": name,
                }
                self._add(owner, _template(owner), name, labels)
            if ordered and not tally.names[name]:
                return  # the next one waits for this one
            done.number = ordinal + 1

    def _leader_worker_set(self, owner: Json) -> None:
        """Make its StatefulSets, and none where there is one, or a leader of one that is unseen."""
        metadata, uid = owner["metadata"], owner["metadata"]["uid"]
        known = self._overlay.all(_STATEFUL_SETS)
        if any(ref["uid"] == uid for each in known for ref in _owners(each)):
            return
        if self._overlay.get(PODS, metadata.get("namespace", ""), f"{metadata['name']}-0"):
            return
        made, _ = children(FAMILIES[_LEADER_WORKER_SETS], owner)
        sets = [each for each in made if isinstance(each, Child)]
        pods = sum(each.body["spec"]["replicas"] for each in sets)
        if self._made.allowed(owner, pods, pods):
            for each in sets:
                one = child(owner, each.api_version, each.kind, each.name, each.body)
                self._overlay.create(_STATEFUL_SETS, one)

    def _done_of(self, owner: Json, tally: Tally, shape: int) -> _Done:
        """Return what needs no look: nothing once a pod was lost, or the set has another shape."""
        uid = owner["metadata"]["uid"]
        done = self._done.get(uid)
        if done is None or (done.losses, done.shape) != (tally.losses, shape):
            done = self._done[uid] = _Done(tally.losses, shape)
        return done

    def _add(
        self, owner: Json, template: Json, name: str, labels: dict[str, str] | None = None
    ) -> None:
        self._claims.create_pod(pod_of(self._overlay, owner, template, name, labels or {}))


def _owners(obj: Json) -> list[Json]:
    found: list[Json] = obj["metadata"].get("ownerReferences") or []
    return found


def _template(owner: Json) -> Json:
    found: Json = first(owner, "spec.template") or {}
    return found


def _replicas(owner: Json) -> int:
    found: Any = first(owner, "spec.replicas")
    return 1 if found is None else int(found)
