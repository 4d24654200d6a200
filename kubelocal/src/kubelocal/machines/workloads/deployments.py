"""The Deployment controller: one ReplicaSet per pod template, rolled over within the bounds.

Source: `apps/v1` Deployments, strategies RollingUpdate (maxSurge, maxUnavailable) and Recreate,
pause, revision numbers and history. Not imitated: proportional scaling in the middle of a roll-out,
progress deadlines, adoption.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import Change, Object
from kubelocal.machines.workloads.replicas import by_controller, matching, replicas_of, same_status
from kubeworld.objects.conditions import set_condition
from kubeworld.objects.owners import child, template_hash
from kubeworld.units.clock import Clock
from kubeworld.units.instants import format_instant
from kubeworld.units.percents import scaled

__all__ = ["DeploymentController"]

_DEPLOYMENTS: Final = "deployments.apps"
_REPLICA_SETS: Final = "replicasets.apps"
_HASH: Final = "pod-template-hash"
_REVISION: Final = "deployment.kubernetes.io/revision"
_TIMES: Final = ("lastTransitionTime", "lastUpdateTime")


class DeploymentController:
    """Runs Deployments."""

    name = "deployments"

    def __init__(self, informer: Informer, clock: Clock, recorder: Recorder) -> None:
        self._informer = informer
        self._clock = clock
        self._recorder = recorder

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        return by_controller(change, _DEPLOYMENTS, "Deployment", _REPLICA_SETS)

    async def reconcile(self, key: Key) -> None:
        deployment = self._informer.at(key)
        if deployment is None or deployment["metadata"].get("deletionTimestamp"):
            return
        digest = template_hash(deployment["spec"]["template"])
        new, old = self._sets(deployment, digest)
        if new is None and not deployment["spec"].get("paused"):
            new = await self._create(deployment, digest, old)
        elif new is not None:
            new = await self._make_latest(deployment, new, old)
        if new is not None:
            await self._roll(deployment, new, old)
        new, old = self._sets(deployment, digest)
        await self._forget_history(deployment, old)
        await self._report(key, new, old)

    def _sets(self, deployment: Object, digest: str) -> tuple[Object | None, list[Object]]:
        """Return the ReplicaSet of the present template and the others, oldest revision first."""
        found = matching(self._informer, deployment, _REPLICA_SETS)
        found.sort(key=lambda s: (_revision(s), s["metadata"]["name"]))
        new = next((s for s in found if s["metadata"]["labels"].get(_HASH) == digest), None)
        return new, [s for s in found if s is not new]

    async def _create(self, deployment: Object, digest: str, old: list[Object]) -> Object:
        spec, name = deployment["spec"], f"{deployment['metadata']['name']}-{digest}"
        template = copy.deepcopy(spec["template"])
        labels = {**((template.get("metadata") or {}).get("labels") or {}), _HASH: digest}
        template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
        selector = copy.deepcopy(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _HASH: digest}
        count = min(replicas_of(deployment), _room(deployment, old))
        if _strategy(deployment) == "Recreate" and any(_held(s) for s in old):
            count = 0
        body: Object = {
            "metadata": {"labels": labels},
            "spec": {"replicas": count, "selector": selector, "template": template},
        }
        if spec.get("minReadySeconds"):
            body["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        revision = str(max((_revision(s) for s in old), default=0) + 1)
        made = child(
            deployment, "apps/v1", "ReplicaSet", name, body, annotations={_REVISION: revision}
        )
        new = await self._informer.create(_REPLICA_SETS, made)
        if count:
            self._record_scaling(deployment, f"Scaled up replica set {name} from 0 to {count}")
        return new

    async def _make_latest(self, deployment: Object, new: Object, old: list[Object]) -> Object:
        """Give an older template that is wanted again the highest revision."""
        latest = max((_revision(s) for s in old), default=0)
        if _revision(new) > latest:
            return new
        updated = copy.deepcopy(new)
        annotations = updated["metadata"].setdefault("annotations", {})
        annotations[_REVISION] = str(latest + 1)
        return await self._informer.update(_REPLICA_SETS, updated)

    async def _roll(self, deployment: Object, new: Object, old: list[Object]) -> None:
        wanted = replicas_of(deployment)
        running = [s for s in old if replicas_of(s) > 0]
        if deployment["spec"].get("paused"):
            if not running:
                await self._scale(deployment, new, wanted)
            return
        if _strategy(deployment) == "Recreate":
            for replica_set in running:
                await self._scale(deployment, replica_set, 0)
            if not any(_held(s) for s in old):
                await self._scale(deployment, new, wanted)
            return
        if replicas_of(new) > wanted:
            new = await self._scale(deployment, new, wanted)
        else:
            more = min(wanted - replicas_of(new), _room(deployment, [*old, new]))
            new = await self._scale(deployment, new, replicas_of(new) + max(0, more))
        await self._shrink(deployment, new, running)

    async def _shrink(self, deployment: Object, new: Object, old: list[Object]) -> None:
        """Scale old ReplicaSets down as far as enough replicas stay available."""
        _, unavailable = _bounds(deployment)
        least = replicas_of(deployment) - unavailable
        new_missing = replicas_of(new) - _available(new)
        total = replicas_of(new) + sum(map(replicas_of, old))
        may_go = total - least - new_missing
        for unhealthy_only in (True, False):
            for replica_set in old:
                held = replicas_of(
                    self._informer.at(key_of(_REPLICA_SETS, replica_set)) or replica_set
                )
                limit = held - _available(replica_set) if unhealthy_only else held
                going = min(limit, may_go)
                if going > 0:
                    may_go -= going
                    await self._scale(deployment, replica_set, held - going)

    async def _scale(self, deployment: Object, replica_set: Object, count: int) -> Object:
        fresh = self._informer.at(key_of(_REPLICA_SETS, replica_set)) or replica_set
        before = replicas_of(fresh)
        if before == count:
            return fresh
        updated = {**fresh, "spec": {**fresh["spec"], "replicas": count}}
        scaled = await self._informer.update(_REPLICA_SETS, updated)
        direction = "up" if count > before else "down"
        name = fresh["metadata"]["name"]
        self._record_scaling(
            deployment, f"Scaled {direction} replica set {name} from {before} to {count}"
        )
        return scaled

    async def _forget_history(self, deployment: Object, old: list[Object]) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit")
        empty = [s for s in old if not replicas_of(s) and not _held(s) and not _leaves(s)]
        for replica_set in empty[: max(0, len(empty) - (10 if limit is None else int(limit)))]:
            await self._informer.delete(_REPLICA_SETS, replica_set)

    async def _report(self, key: Key, new: Object | None, old: list[Object]) -> None:
        deployment = self._informer.at(key)
        if deployment is None:
            return
        if new is not None:
            deployment = await self._number(deployment, _revision(new))
        sets = [*old, new] if new is not None else old
        wanted, now = replicas_of(deployment), format_instant(self._clock.wall())
        total, available = sum(map(_held, sets)), sum(map(_available, sets))
        updated = _held(new) if new is not None else 0
        status: dict[str, Any] = {
            **copy.deepcopy(deployment.get("status") or {}),
            "observedGeneration": deployment["metadata"].get("generation", 1),
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum((s.get("status") or {}).get("readyReplicas", 0) for s in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, wanted - available),
        }
        enough = available >= wanted - _bounds(deployment)[1]
        set_condition(
            status,
            "Available",
            enough,
            now,
            reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            message=f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            times=_TIMES,
        )
        if new is not None:
            done = updated == total == wanted == available
            name = new["metadata"]["name"]
            reason, text = (
                ("NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.')
                if done
                else ("ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
            )
            set_condition(
                status, "Progressing", True, now, reason=reason, message=text, times=_TIMES
            )
        if not same_status(deployment, status):
            await self._informer.update(
                _DEPLOYMENTS, {**deployment, "status": status}, subresource="status"
            )

    async def _number(self, deployment: Object, revision: int) -> Object:
        """Write the revision on the Deployment itself."""
        annotations = deployment["metadata"].get("annotations") or {}
        if annotations.get(_REVISION) == str(revision):
            return deployment
        updated = copy.deepcopy(deployment)
        updated["metadata"]["annotations"] = {**annotations, _REVISION: str(revision)}
        return await self._informer.update(_DEPLOYMENTS, updated)

    def _record_scaling(self, deployment: Object, message: str) -> None:
        self._recorder.normal(deployment, "ScalingReplicaSet", message)


def _strategy(deployment: Object) -> str:
    return str((deployment["spec"].get("strategy") or {}).get("type") or "RollingUpdate")


def _bounds(deployment: Object) -> tuple[int, int]:
    """Return maxSurge (percent rounded up) and maxUnavailable (rounded down), not both zero."""
    if _strategy(deployment) == "Recreate":
        return 0, 0
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    wanted = replicas_of(deployment)
    surge = scaled(rolling.get("maxSurge", "25%"), wanted) or 0
    unavailable = scaled(rolling.get("maxUnavailable", "25%"), wanted, up=False) or 0
    return surge, min(wanted, unavailable or (0 if surge else 1))


def _room(deployment: Object, sets: list[Object]) -> int:
    """Return how many replicas may still be added."""
    surge, _ = _bounds(deployment)
    return max(0, replicas_of(deployment) + surge - sum(map(replicas_of, sets)))


def _held(replica_set: Object) -> int:
    return int((replica_set.get("status") or {}).get("replicas", 0))


def _available(replica_set: Object) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def _leaves(replica_set: Object) -> bool:
    return bool(replica_set["metadata"].get("deletionTimestamp"))


def _revision(replica_set: Object) -> int:
    text = (replica_set["metadata"].get("annotations") or {}).get(_REVISION, "0")
    return int(text) if text.isdigit() else 0
