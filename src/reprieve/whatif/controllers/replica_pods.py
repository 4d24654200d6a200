"""Pods of what runs for ever: made when it is created, and again when one of them is lost.

A Deployment and a LeaderWorkerSet that are created get their ReplicaSet and StatefulSets.

Their status is not written: no decision reads it. Source:
`kubeworld.controllers`, `kubeworld.kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kubeworld.controllers.deployments import new_replica_set
from kubeworld.controllers.replica_sets import replica_pod
from kubeworld.controllers.replicas import replicas_of
from kubeworld.controllers.stateful_sets import (
    is_ordered,
    ordinal_pod,
    ordinals,
    revision_wanted,
)
from kubeworld.kinds.families import FAMILIES, Child, children
from kubeworld.objects.owners import child, template_hash
from kubeworld.objects.paths import Json
from reprieve.kube.resource import PODS, Resource
from reprieve.whatif.controllers.made_pods import MadePods
from reprieve.whatif.controllers.owned_pods import OwnedPods, Tally
from reprieve.whatif.controllers.pod_claims import PodClaims
from reprieve.whatif.controllers.pod_templates import admitted_pod
from reprieve.whatif.copy.overlay import Overlay

__all__ = ["ReplicaPods"]

_REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
_STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
_DEPLOYMENT, _REPLICA_SET = ("apps", "Deployment"), ("apps", "ReplicaSet")
_STATEFUL_SET = ("apps", "StatefulSet")
_LEADER_WORKER_SET = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
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
        """Return whether pods of this kind are made here."""
        return (group, kind) in self._makers

    def reconcile(self, owner: Json) -> None:
        """Make the pods that an owner lacks."""
        if owner["metadata"].get("deletionTimestamp"):
            return
        group = str(owner["apiVersion"]).rpartition("/")[0]
        self._makers[group, owner["kind"]](_with_template(owner))

    def _deployment(self, owner: Json) -> None:
        """Make its ReplicaSet; one that has any is left to what its controller did before."""
        if owner["spec"].get("paused"):
            return  # its controller rolls nothing out until it is resumed
        uid = owner["metadata"]["uid"]
        known = self._overlay.all(_REPLICA_SETS)
        if any(ref["uid"] == uid for each in known for ref in _owners(each)):
            return
        digest, count = template_hash(owner["spec"]["template"]), owner["spec"].get("replicas")
        self._overlay.create(_REPLICA_SETS, new_replica_set(owner, digest, count, 1))

    def _replica_set(self, owner: Json) -> None:
        wanted, here = replicas_of(owner), self._owned.of(owner["metadata"]["uid"]).active
        for _ in range(self._made.allowed(owner, wanted, wanted - here)):
            self._add(replica_pod(owner, self._overlay.suffixes(PODS, owner)))

    def _stateful_set(self, owner: Json) -> None:
        tally, numbers = self._owned.of(owner["metadata"]["uid"]), ordinals(owner)
        ordered, lacking = is_ordered(owner), len(numbers) - tally.pods
        if not ordered and lacking > 0 and not self._made.allowed(owner, len(numbers), lacking):
            return
        done, revision = self._done_of(owner, tally, numbers.start), ""
        for ordinal in range(max(numbers.start, done.number), numbers.stop):
            name = f"{owner['metadata']['name']}-{ordinal}"
            if name not in tally.names:
                if ordered and not self._made.allowed(owner, len(numbers), 1):
                    return
                revision = revision or revision_wanted(owner)
                self._add(ordinal_pod(owner, ordinal, revision))
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

    def _add(self, pod: Json) -> None:
        self._claims.create_pod(admitted_pod(self._overlay, pod))


def _with_template(owner: Json) -> Json:
    """Return an owner with a template that has a spec; an unvalidated manifest may have none."""
    spec = owner.get("spec") or {}
    template = spec.get("template") or {}
    if template.get("spec"):
        return owner
    return {**owner, "spec": {**spec, "template": {**template, "spec": {}}}}


def _owners(obj: Json) -> list[Json]:
    found: list[Json] = obj["metadata"].get("ownerReferences") or []
    return found
