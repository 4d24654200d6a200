"""Gangs of the older APIs as part of the scheduling plane.

Pods reach the book through the cluster's state, PodGroups and the ConfigMap through watches of
their own. The arguments in force are those of the file with those of the ConfigMap on top; a change
applies at once and is reported in an event on the ConfigMap, a bad value too, and then nothing
changes. Source: specification of gang jobs; issue of gang jobs, "Configuration".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from kubeworld.units.durations import MINUTE
from reprieve.api.gangs import DOORS, Door, ElasticQuota, PodGroup
from reprieve.engine.cluster.rows import GroupRow, Labels, PodRow
from reprieve.engine.cluster.trees import Way
from reprieve.engine.plan import Plane
from reprieve.engine.scheduling.gangs.cycle import GANG_KEY, GangGroup
from reprieve.engine.scheduling.gangs.job import JobOptions, VictimGangs
from reprieve.engine.scheduling.gangs.phases import PhasePod
from reprieve.engine.scheduling.outcome import GangCycle, Unit
from reprieve.intake.gangs_quotas import protected_by
from reprieve.planes.common.config_map import ConfigMap
from reprieve.planes.scheduling.context import SchedulingContext, log
from reprieve.planes.scheduling.gangs.audit import Audit, Happened
from reprieve.planes.scheduling.gangs.book import GangBook, Parked
from reprieve.planes.scheduling.gangs.statuses import GroupStatuses
from reprieve.planes.scheduling.gangs.watches import GangWatches
from reprieve.planes.scheduling.references import pod_reference
from reprieve.planes.scheduling.state import ClusterState
from reprieve.settings.coscheduling import (
    CONFIG_MAP,
    CONFIG_NAMESPACE,
    CoschedulingSettings,
    changes,
    read_config_map,
)
from reprieve.telemetry.probes import Page
from reprieve.units.errors import UsageError
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from reprieve.wording import koordinator as wording
from reprieve.wording.events import EventText

__all__ = ["GangPlane", "QueueFacts"]


_WITHDRAWN_FOR: Final = MINUTE


class GangPlane:
    """All that concerns gangs in one scheduling plane."""

    def __init__(self, context: SchedulingContext, state: ClusterState) -> None:
        self._context = context
        self._state = state
        self._file = context.settings.coscheduling
        self._rejected = ""  # the bad value that was reported last
        self._read = asyncio.Event()
        self.settings: CoschedulingSettings = self._file
        self.audit = Audit()
        self._quotas: dict[str, list[ElasticQuota]] = {}
        self.options: JobOptions = self.settings.options
        self.book = GangBook(lambda: self.settings, self._requeue, self._changed)
        self.statuses = GroupStatuses(
            context.full_client,
            context.fence,
            context.clock,
            self._phase_pods,
            fault=context.metrics.status_faults.labels(Plane.SCHEDULING.value).inc,
            dry_run=context.dry_run,
        )
        #: Writes that a pod has no nomination any more.
        self.withdraw: Callable[[PodRow], None] = lambda row: None
        self.watches = GangWatches(
            context.full_client,
            context.clock,
            apply=self._apply_group,
            remove=self._remove_group,
            configuration=self._configure,
            quotas=self._apply_quotas,
        )

    async def run(self) -> None:
        """Watch and write statuses until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watches.run())
            tasks.create_task(self.statuses.run())

    # What the state reports.

    def pod_seen(self, row: PodRow) -> None:
        """A member came or changed."""
        self.release(self.book.see(row))
        self.statuses.reconcile(row.gang)

    def pod_gone(self, row: PodRow) -> None:
        """A member was deleted."""
        self.book.gone(row.uid)
        self.statuses.reconcile(row.gang)

    def waits(self, uid: Uid) -> bool:
        """Whether the pod waits in Permit, so that it is not in the queue."""
        return uid in self.book.parked

    # What decisions query and report.

    def groups(self, units: Iterable[Unit]) -> dict[str, GangGroup]:
        """Return the gang groups of these units, by their key."""
        whole = self.settings.policy.victim_gangs is VictimGangs.ALL
        found = {}
        for unit in units:
            if unit.group.startswith(GANG_KEY):
                group = self.book.group(unit.group, with_others=whole)
                if group is not None:
                    found[unit.group] = group
        return found

    def options_now(self) -> JobOptions:
        """Return the options of jobs, with all gangs where victims' gangs are evicted whole."""
        if self.settings.policy.victim_gangs is not VictimGangs.ALL:
            return self.options
        return replace(self.options, gangs=self.book.bound())

    def park(self, cycle: GangCycle, now: int) -> None:
        """Members that have a node wait in Permit."""
        for (uid, node), wait in zip(cycle.parked, cycle.waits, strict=True):
            row = self._state.pod(uid)
            if row is None:
                continue
            deadline = now + wait
            # The deadline here is the one that counts; the other only guards against leaks.
            if self._state.cluster.assume(uid, node, 2 * deadline + 1):
                self.book.park(row, node, deadline)

    def release(self, uids: Iterable[Uid]) -> list[Parked]:
        """Members that waited return to the queue; the result names them."""
        found = self.book.unpark(uids)
        now = self._context.clock.monotonic()
        for each in found:
            self._state.unassume(each.row)
            row = self._state.pod(each.row.uid)
            if row is not None and self._state.ours(row):
                self._state.queue.add(row, now)
        return found

    def reconcile(self, now: int) -> None:
        """End the time in Permit, and that of groups that are held back, when it is over."""
        self.book.let_go(now)
        for group in self.book.overdue(now):
            first = group[0].row
            text = wording.unreserved(first.gang, first.name)
            for each in group:
                self._state.unassume(each.row)
                row = self._state.pod(each.row.uid)
                if row is None or not self._state.ours(row):
                    continue
                self._state.queue.add(row, now)
                event = EventText("Warning", "FailedScheduling", text, "Scheduling")
                self._context.announce(pod_reference(row), event, row.pod_class.scheduler_name)

    # Views.

    def view(self, id: str) -> dict[str, Any] | None:
        """Return a gang as the scheduler's debug port shows it."""
        gang = self.book.gangs.get(id)
        if gang is None:
            return None
        spec = gang.spec

        def pods(keys: Iterable[str]) -> dict[str, Any]:
            return {key: {"uid": gang.children[key].uid} for key in sorted(keys)}

        return {
            "name": gang.id,
            "waitTime": spec.wait if spec is not None else 0,
            "createTime": gang.created,
            "mode": str(spec.mode) if spec is not None else "Strict",
            "gangMatchPolicy": str(gang.policy),
            "minRequiredNumber": gang.minimum,
            "totalChildrenNum": spec.total if spec is not None else 0,
            "gangGroup": list(gang.group),
            "children": pods(gang.children),
            "pendingChildren": pods(gang.pending),
            "waitingForBindChildren": pods(gang.waiting),
            "boundChildren": pods(gang.bound),
            "onceResourceSatisfied": self.book.gangs.satisfied(gang),
            "gangGroupInfo": {"gangGroupId": gang.group_id, "gangGroup": list(gang.group)},
            "gangFrom": str(gang.origin),
            "hasGangInit": spec is not None,
        }

    def page(self, path: str) -> Page:
        """Return what is shown below `/apis/v1/plugins/`."""
        match path.split("/"):
            case ["Coscheduling", "gangs"]:
                return Page(dict(self.views()))
            case ["Coscheduling", "gang", namespace, name]:
                found = self.view(f"{namespace}/{name}")
                if found is None:
                    return Page(missing=f"cannot find gang {namespace}/{name}")
                return Page(found)
            case ["Coscheduling", "audit", *parts]:
                found = self.audit.view("/".join(parts))
                return Page(found) if found is not None else Page(missing="no records")
            case _:
                return Page(missing="not found")

    def views(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield all gangs by id."""
        for gang in self.book.gangs:
            found = self.view(gang.id)
            if found is not None:
                yield gang.id, found

    # How.

    def _apply_group(self, door: Door, group: PodGroup) -> None:
        id = f"{group.metadata.namespace}/{group.metadata.name}"
        new = self.book.gangs.get(id) is None
        self.book.apply_group(door, group)
        gang = self.book.gangs.get(id)
        if new and gang is not None:
            self.audit.record(gang.group_id, Happened.CREATE, self._context.clock.wall())
        self.statuses.observe(door, group)
        self._state.changed()

    def _apply_quotas(self, door: Door, quotas: list[ElasticQuota]) -> None:
        self._quotas[door.api_version] = quotas
        self._renew()

    def _renew(self) -> None:
        """Apply settings and quotas together; gangs that wait may have other victims now."""
        before, options = self.options, self.settings.options
        listed = [(d, q) for d in DOORS for q in self._quotas.get(d.api_version, ())]
        self.options = replace(options, policy=protected_by(options.policy, listed))
        if self.options != before:
            queue = self._state.queue
            gangs = [each.key for each in queue.entries() if each.key.startswith(GANG_KEY)]
            queue.activate(gangs, self._context.clock.monotonic())
            self._state.changed()

    def _remove_group(self, door: Door, id: str) -> None:
        gang = self.book.gangs.get(id)
        rows = self.book.pending(GANG_KEY + gang.group_id) if gang is not None else []
        self.book.remove_group(door, id)
        left = self.book.gangs.get(id)
        if left is None or not left.has_group:
            self._withdraw(rows)
        self.statuses.remove(id)
        self._state.changed()

    def _requeue(self, rows: Iterable[PodRow]) -> None:
        now = self._context.clock.monotonic()
        for row in rows:
            if row.uid in self._state.queue:
                self._state.queue.remove(row.uid)
                self._state.queue.add(row, now)

    def _changed(self, key: str) -> None:
        now = self._context.clock.wall()
        passed = self.book.fact(key) is not None
        what = Happened.PASSED if passed else Happened.GATED
        self.audit.record(key.removeprefix(GANG_KEY), what, now)
        if not passed:
            self._withdraw(self.book.pending(key))
        self._state.queue.group_changed(key, self._context.clock.monotonic())

    def _withdraw(self, rows: Iterable[PodRow]) -> None:
        """Remove the nominations of pods whose gang is no longer complete."""
        monotonic = self._context.clock.monotonic()
        rows = [row for seen in rows if (row := self._state.pod(seen.uid)) is not None]
        parked = {each.row.uid for each in self.release(row.uid for row in rows)}
        for row in rows:
            kept = self._state.cluster.overlay.nominated.get(row.uid)
            nominated = kept.node if kept is not None else row.nominated
            if self._state.ours(row) and (nominated or row.uid in parked):
                deadline = monotonic + _WITHDRAWN_FOR
                self._state.cluster.nominate(row.uid, "", row.priority, deadline)
                self.withdraw(row)

    def _phase_pods(self, id: str) -> list[PhasePod]:
        gang = self.book.gangs.get(id)
        if gang is None:
            return []
        found = []
        for child in gang.children.values():
            row = self._state.pod(child.uid)
            if row is not None:
                owners = tuple(f"{row.namespace}/{name}" for name in row.owners)
                found.append(PhasePod(row.phase, row.node, owners))
        return found

    def _configure(self, given: ConfigMap | None) -> None:
        where = f"ConfigMap {CONFIG_NAMESPACE}/{CONFIG_MAP}"
        before = self.settings
        data = given.data if given is not None else None
        try:
            after = read_config_map(data or {}, where, self._file)
        except UsageError as error:
            if str(error) != self._rejected:
                log.warning("%s", error)
                self._rejected = str(error)
                self._announce(
                    given, EventText("Warning", "InvalidConfiguration", str(error), "Read")
                )
            return
        self._rejected = ""
        self.settings = after
        self._renew()
        first = not self._read.is_set()
        self._read.set()
        reported = changes(before, after)
        if not reported:
            return
        text = ", ".join(reported)
        log.info("%s: %s", where, text)
        if not first:
            self._announce(given, EventText("Normal", "ConfigurationChanged", text, "Read"))
        self.book.reread()
        self._state.changed()

    def _announce(self, given: ConfigMap | None, text: EventText) -> None:
        metadata = given.metadata if given is not None else None
        about = Reference(
            "v1",
            "ConfigMap",
            CONFIG_NAMESPACE,
            CONFIG_MAP,
            Uid(metadata.uid if metadata is not None else ""),
            metadata.resource_version if metadata is not None else "",
        )
        self._context.announce(about, text, "reprieve-scheduler")


class QueueFacts:
    """What the queue reads: gang groups from the book, everything else from the state."""

    def __init__(self, state: ClusterState, gangs: GangPlane) -> None:
        self._state = state
        self._book = gangs.book

    def group(self, key: str) -> GroupRow | None:
        if key.startswith(GANG_KEY):
            return self._book.fact(key)
        return self._state.group(key)

    def root(self, key: str) -> tuple[Way, str]:
        if key.startswith(GANG_KEY):
            return (Way.MISSING if self._book.fact(key) is None else Way.ROOT), key
        return self._state.root(key)

    def children(self, key: str) -> Sequence[str]:
        return self._state.children(key)

    def known(self, key: str) -> int:
        return self._book.known(key) if key.startswith(GANG_KEY) else self._state.known(key)

    def claims(self, pod: PodRow) -> str:
        return self._state.claims(pod)

    def namespace_labels(self, namespace: str) -> Labels:
        return self._state.namespace_labels(namespace)

    def device_class(self, resource: str) -> str:
        found = self._state.cluster.extended_classes().get(resource)
        return "" if found is None else found.name

    def gang_key(self, pod: PodRow) -> str:
        return self._book.key_of(pod)
