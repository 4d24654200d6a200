"""Drives a controller that is a function of an owner, what it controls and the time.

Source: the events `FailedCreate` of kube-controller-manager; the rest is `kubeworld.controllers`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kubelocal.machines.events import Recorder
from kubelocal.machines.informer import Informer, Key, key_of
from kubelocal.machines.objects import AlreadyThere, Change, ChangeType, Object, StoreError
from kubeworld.controllers.acts import Act, Create, Delete, Event, Outcome, Status, Suffix, Update
from kubeworld.objects.owners import controller_of, suffix
from kubeworld.objects.selectors import matches_labels
from kubeworld.units.clock import Clock
from kubeworld.units.instants import Nanos

__all__ = ["Driver", "Rule", "Stage", "create"]

Step: TypeAlias = Callable[[Object, Sequence[Object], Nanos, Suffix], Outcome]


@dataclass(frozen=True, slots=True)
class Stage:
    """What a driver works with. `join` adds a new pod of an owner to its group."""

    informer: Informer
    clock: Clock
    recorder: Recorder
    generator: random.Random
    join: Callable[[Object, Object], None] = lambda pod, owner: None


@dataclass(frozen=True, slots=True)
class Rule:
    """A controller: of objects of `resource` and `kind`, which control those of `below`."""

    name: str
    resource: str
    kind: str
    below: str
    step: Step


class Driver:
    """Runs one controller for each object of its kind, and carries out what it answers."""

    def __init__(self, rule: Rule, stage: Stage) -> None:
        self.name = rule.name
        self._rule = rule
        self._stage = stage
        self._informer = stage.informer
        self._clock = stage.clock

    def concerns(self, change: Change, before: Object | None) -> Iterable[Key]:
        rule = self._rule
        if change.resource == rule.resource:
            gone = change.type is ChangeType.DELETED
            return [] if gone else [key_of(rule.resource, change.object)]
        owner = controller_of(change.object) if change.resource == rule.below else None
        if owner is None or owner["kind"] != rule.kind:
            return []
        namespace = change.object["metadata"].get("namespace", "")
        return [Key(rule.resource, namespace, owner["name"])]

    async def reconcile(self, key: Key) -> int | None:
        owner = self._informer.at(key)
        if owner is None or owner["metadata"].get("deletionTimestamp"):
            return None
        held = self._informer.controlled(owner["metadata"]["uid"], self._rule.below)
        acts, again = self.step(owner, [each for each in held if self.selects(owner, each)])
        await self.carry_out(owner, acts)
        return again

    def step(self, owner: Object, dependants: Sequence[Object]) -> Outcome:
        """Query the controller."""
        return self._rule.step(owner, dependants, self._clock.wall(), self._suffix)

    def selects(self, owner: Object, dependant: Object) -> bool:
        """Return whether what an owner controls counts; anything else is left alone."""
        selector = owner["spec"].get("selector", {})  # a CronJob has none
        return matches_labels(selector, dependant["metadata"].get("labels"))

    async def carry_out(self, owner: Object, acts: Iterable[Act]) -> None:
        """Carry out the acts of an owner, up to the first that is refused.

        Raises:
            StoreError: one was refused; the machine tries again later.
        """
        for act in acts:
            if isinstance(act, Event):
                recorder = self._stage.recorder
                tell = recorder.warning if act.warning else recorder.normal
                tell(owner, act.reason, act.message)
            elif isinstance(act, Status):
                resource = self._rule.resource
                fresh = self._informer.at(key_of(resource, owner)) or owner
                changed = {**fresh, "status": act.status}
                await self._informer.update(resource, changed, subresource="status")
            else:
                await self._write(owner, act)

    async def _write(self, owner: Object, act: Create | Update | Delete) -> None:
        resource = self._informer.objects.resource_of(act.object["apiVersion"], act.object["kind"])
        assert resource is not None, "a controller writes what is served"
        if isinstance(act, Update):
            await self._informer.update(resource, act.object)
        elif isinstance(act, Delete):
            await self._informer.delete(resource, act.object, propagation=act.propagation)
        else:
            await create(self._stage, resource, owner, act)

    def _suffix(self, stem: str) -> str:
        return suffix(self._stage.generator)


async def create(stage: Stage, resource: str, owner: Object, act: Create) -> None:
    """Create an object of an owner.

    Raises:
        StoreError: it was refused, which is reported on the owner; the machine tries again later.
    """
    if resource == "pods":
        stage.join(act.object, owner)
    try:
        await stage.informer.create(resource, act.object)
    except AlreadyThere:
        raise
    except StoreError as refusal:
        if act.refused:
            stage.recorder.warning(owner, "FailedCreate", f"{act.refused}: {refusal}")
        raise
