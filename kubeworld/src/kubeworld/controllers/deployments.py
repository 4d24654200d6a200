"""The Deployment controller: one ReplicaSet per pod template, rolled over within the bounds.

Source: `apps/v1` Deployments, strategies RollingUpdate (maxSurge, maxUnavailable) and Recreate,
pause, revision numbers and history. Not imitated: proportional scaling in the middle of a roll-out,
progress deadlines, adoption.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Final

from kubeworld.controllers.acts import Act, Create, Delete, Event, Object, Outcome, Suffix, Update
from kubeworld.controllers.replicas import replicas_of, with_status
from kubeworld.objects.conditions import set_condition
from kubeworld.objects.owners import child, template_hash
from kubeworld.units.instants import Nanos, format_instant
from kubeworld.units.percents import scaled
from kubeworld.units.untrusted import INT64, integer_or_none

__all__ = ["new_replica_set", "step"]

_HASH: Final = "pod-template-hash"
_REVISION: Final = "deployment.kubernetes.io/revision"
_TIMES: Final = ("lastTransitionTime", "lastUpdateTime")


def step(owner: Object, sets: Sequence[Object], now: Nanos, suffix: Suffix) -> Outcome:
    """Return what a Deployment does next; `sets`: the ReplicaSets that it selects."""
    rollout = _Rollout(owner, sets)
    acts = list(rollout.acts())
    return Outcome(with_status(acts, owner, rollout.status(now)))


def new_replica_set(owner: Object, digest: str, count: int | None, revision: int) -> Object:
    """Return a ReplicaSet of the template that a Deployment has now; `digest` names it."""
    spec, name = owner["spec"], f"{owner['metadata']['name']}-{digest}"
    template = copy.deepcopy(spec["template"])
    labels = {**((template.get("metadata") or {}).get("labels") or {}), _HASH: digest}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
    selector = copy.deepcopy(spec.get("selector") or {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH: digest}
    body: Object = {"selector": selector, "template": template}
    if count is not None:
        body["replicas"] = count
    if spec.get("minReadySeconds"):
        body["minReadySeconds"] = spec["minReadySeconds"]
    made = {"metadata": {"labels": labels}, "spec": body}
    notes = {_REVISION: str(revision)}
    return child(owner, "apps/v1", "ReplicaSet", name, made, annotations=notes)


class _Rollout:
    """One look at a Deployment. The sets are its own copies, as its acts will have left them."""

    def __init__(self, owner: Object, sets: Sequence[Object]) -> None:
        self._owner = owner
        self._wanted = replicas_of(owner)
        self._paused = bool(owner["spec"].get("paused"))
        strategy = owner["spec"].get("strategy") or {}
        self._recreates = strategy.get("type") == "Recreate"
        self._surge, self._unavailable = self._bounds(strategy.get("rollingUpdate") or {})
        self._digest = template_hash(owner["spec"]["template"])
        found = sorted(sets, key=lambda each: (_revision(each), each["metadata"]["name"]))
        self._found = {each["metadata"]["name"]: each for each in found}
        self._new = next((each for each in found if _has_template(each, owner)), None)
        self._old = [each for each in found if each is not self._new]
        self._events: list[Act] = []

    def _bounds(self, rolling: Object) -> tuple[int, int]:
        """Return maxSurge (percent rounded up) and maxUnavailable (rounded down), not both zero."""
        if self._recreates:
            return 0, 0
        surge = scaled(rolling.get("maxSurge", "25%"), self._wanted) or 0
        unavailable = scaled(rolling.get("maxUnavailable", "25%"), self._wanted, up=False) or 0
        return surge, min(self._wanted, unavailable or (0 if surge else 1))

    def acts(self) -> Iterator[Act]:
        if self._new is None and not self._paused:
            self._new = self._made()
        elif self._new is not None:
            latest = max(map(_revision, self._old), default=0)
            if _revision(self._new) <= latest:  # an older template that is wanted again
                self._new = _annotated(self._new, latest + 1)
        if self._new is not None:
            self._roll(self._new)
        for each in self._sets():
            known = self._found.get(each["metadata"]["name"])
            if each != known:
                yield Create(each) if known is None else Update(each)
        yield from self._events
        limit = self._owner["spec"].get("revisionHistoryLimit")
        idle = (s for s in self._old if not replicas_of(s) and not _held(s))
        empty = [s for s in idle if not s["metadata"].get("deletionTimestamp")]
        for each in empty[: max(0, len(empty) - (10 if limit is None else int(limit)))]:
            self._old.remove(each)
            yield Delete(each)
        if self._new is not None and _revision(self._owner) != _revision(self._new):
            yield Update(_annotated(self._owner, _revision(self._new)))

    def _made(self) -> Object:
        count = min(self._wanted, self._room())
        if self._recreates and any(map(_held, self._old)):
            count = 0
        revision = max(map(_revision, self._old), default=0) + 1
        made = new_replica_set(self._owner, self._digest, count, revision)
        if count:
            self._report_scaling(made, 0, count)
        return made

    def _room(self) -> int:
        """Return how many replicas may still be added."""
        return max(0, self._wanted + self._surge - sum(map(replicas_of, self._sets())))

    def _sets(self) -> list[Object]:
        return [*([] if self._new is None else [self._new]), *self._old]

    def _roll(self, new: Object) -> None:
        running = [place for place, each in enumerate(self._old) if replicas_of(each) > 0]
        if self._paused:
            if not running:
                self._new = self._scaled(new, self._wanted)
            return
        if self._recreates:
            for place in running:
                self._old[place] = self._scaled(self._old[place], 0)
            if not any(map(_held, self._old)):
                self._new = self._scaled(new, self._wanted)
            return
        held = replicas_of(new)
        more = min(self._wanted - held, self._room())
        self._new = self._scaled(new, self._wanted if held > self._wanted else held + max(0, more))
        self._shrink(self._new, running)

    def _shrink(self, new: Object, running: Sequence[int]) -> None:
        """Scale old ReplicaSets down as far as enough replicas stay available."""
        least = self._wanted - self._unavailable
        new_missing = replicas_of(new) - _available(new)
        total = replicas_of(new) + sum(replicas_of(self._old[place]) for place in running)
        may_go = total - least - new_missing
        for unhealthy_only in (True, False):
            for place in running:
                each = self._old[place]
                held = replicas_of(each)
                going = min(held - _available(each) if unhealthy_only else held, may_go)
                if going > 0:
                    may_go -= going
                    self._old[place] = self._scaled(each, held - going)

    def _scaled(self, replica_set: Object, count: int) -> Object:
        before = replicas_of(replica_set)
        if before == count:
            return replica_set
        self._report_scaling(replica_set, before, count)
        return {**replica_set, "spec": {**replica_set["spec"], "replicas": count}}

    def _report_scaling(self, replica_set: Object, before: int, count: int) -> None:
        direction = "up" if count > before else "down"
        name = replica_set["metadata"]["name"]
        text = f"Scaled {direction} replica set {name} from {before} to {count}"
        self._events.append(Event("ScalingReplicaSet", text))

    def status(self, now: Nanos) -> Object:
        new, wall, sets = self._new, format_instant(now), self._sets()
        total, available = sum(map(_held, sets)), sum(map(_available, sets))
        updated = _held(new) if new is not None else 0
        before = self._owner.get("status") or {}
        status: Object = {
            "conditions": copy.deepcopy(before.get("conditions") or []),
            "observedGeneration": self._owner["metadata"].get("generation", 1),
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum((s.get("status") or {}).get("readyReplicas", 0) for s in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, self._wanted - available),
        }
        enough = available >= self._wanted - self._unavailable
        reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
        text = f"Deployment {'has' if enough else 'does not have'} minimum availability."
        set_condition(status, "Available", enough, wall, reason=reason, message=text, times=_TIMES)
        if new is not None:
            done = updated == total == self._wanted == available
            reason = "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"
            how = "has successfully progressed" if done else "is progressing"
            text = f'ReplicaSet "{new["metadata"]["name"]}" {how}.'
            set_condition(
                status, "Progressing", True, wall, reason=reason, message=text, times=_TIMES
            )
        return status


def _has_template(replica_set: Object, owner: Object) -> bool:
    """Return whether a ReplicaSet is of the template that its Deployment has now.

    The label with the hash, which each controller makes in its own way, does not count.
    """
    found, wanted = replica_set["spec"]["template"], owner["spec"]["template"]
    labels = {**((found.get("metadata") or {}).get("labels") or {})}
    labels.pop(_HASH, None)
    asked = wanted.get("metadata") or {}
    same = {**(found.get("metadata") or {}), "labels": labels} == {"labels": {}, **asked}
    return same and found["spec"] == wanted["spec"]


def _held(replica_set: Object) -> int:
    return int((replica_set.get("status") or {}).get("replicas", 0))


def _available(replica_set: Object) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def _revision(obj: Object) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(_REVISION)
    return integer_or_none(text, *INT64) or 0


def _annotated(obj: Object, revision: int) -> Object:
    metadata = obj["metadata"]
    notes = {**(metadata.get("annotations") or {}), _REVISION: str(revision)}
    return {**obj, "metadata": {**metadata, "annotations": notes}}
