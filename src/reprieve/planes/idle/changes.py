"""What a change of a watched object makes due, object by object.

Nothing is decided here and nothing is read from the API server: a change is noted where others will
look it up, and the objects that it concerns are due again. Source: the design's "How data flows".
"""

from __future__ import annotations

from reprieve.api.kaiwo import CONFIG_NAME
from reprieve.engine.idle.discovery import Root
from reprieve.kube.cache import Record
from reprieve.planes.idle.announcements import (
    report_foreign,
    report_ignored_config,
    report_rejected,
)
from reprieve.planes.idle.context import IdleContext
from reprieve.planes.idle.due import Due
from reprieve.planes.idle.evaluating.displacements import IdleDisplacements
from reprieve.planes.idle.evaluating.evaluator import Evaluator
from reprieve.planes.idle.ownership import Ownership
from reprieve.planes.idle.queued import Queued
from reprieve.planes.idle.records import (
    ConfigRecord,
    IntentRecord,
    KueueRecord,
    NamespaceRecord,
    PodRecord,
    WorkloadRecord,
)
from reprieve.planes.idle.watches import Watches
from reprieve.planes.idle.workloads import TrackedWorkloads, key_of
from reprieve.settings.idle import kaiwo_config_tier

__all__ = ["Changes"]


class Changes:
    """Hears of every change once it has subscribed.

    `known_roots` are the roots by uid that are followed; `namespace` is the operator's.
    """

    def __init__(
        self,
        context: IdleContext,
        watches: Watches,
        workloads: TrackedWorkloads,
        ownership: Ownership,
        queued: Queued,
        known_roots: dict[str, Root],
        due: Due,
        evaluator: Evaluator,
        namespace: str,
        displacements: IdleDisplacements,
    ) -> None:
        self._displacements = displacements
        self._context = context
        self._watches = watches
        self._workloads = workloads
        self._ownership = ownership
        self._queued = queued
        self._known_roots = known_roots
        self._due = due
        self._evaluator = evaluator
        self._namespace = namespace

    def subscribe(self) -> None:
        """Hear of what is cached already, and of every change from now on."""
        watches = self._watches
        watches.namespaces.cache.subscribe(self._namespace_changed)
        watches.configs.cache.subscribe(self._config_changed)
        watches.pods.cache.subscribe(self._pod_changed)
        watches.workloads.cache.subscribe(self._workload_changed)
        watches.intents.cache.subscribe(self._intent_changed)
        watches.kueue.cache.subscribe(self._kueue_changed)
        watches.devices.templates.cache.subscribe(lambda old, new: self._templates_changed(new))

    def _pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        pod = new or old
        assert pod is not None
        if new is not None and new.row.gpus and self._ownership.root_of(new.uid) is None:
            self._due.pods.add(new.uid)
        owners = self._ownership.owners_of(pod)
        root = self._ownership.root_of(pod.uid)
        if new is not None and old is not None:
            self._note_failure(old, new)
        if new is None:
            self._ownership.forget(pod.uid)
            self._evaluator.open_intents.pod_ended(owners)
            if root is not None:
                self._displacements.pod_ended(root.ref)
        for uid in owners:
            self._due.workloads_of(uid)

    def _note_failure(self, old: PodRecord, new: PodRecord) -> None:
        failed = new.row.phase == "Failed" and old.row.phase != "Failed"
        root = self._ownership.root_of(new.uid)
        if failed and not new.row.terminating and root is not None:
            self._displacements.failed(root.ref)

    def _namespace_changed(self, old: NamespaceRecord | None, new: NamespaceRecord | None) -> None:
        if old is not None and new is not None and old.annotations == new.annotations:
            return
        name = (new or old).name  # type: ignore[union-attr]
        for uid, root in self._known_roots.items():
            if root.ref.namespace == name:
                self._due.roots.add(uid)

    def _config_changed(self, old: ConfigRecord | None, new: ConfigRecord | None) -> None:
        record = new or old
        assert record is not None
        if record.name != CONFIG_NAME:
            if new is not None:
                report_ignored_config(self._context, new)
            return
        tier = kaiwo_config_tier(new.gpu_preemption if new is not None else None)
        self._context.config = tier
        for rejected in tier.rejected:
            report_rejected(self._context, rejected)
        self._due.every_workload()

    def _workload_changed(self, old: WorkloadRecord | None, new: WorkloadRecord | None) -> None:
        if new is None:
            assert old is not None
            self._workloads.remove(old)
            root, key = old.object.spec.workload_ref.uid, key_of(old.namespace, old.name)
            if self._workloads.get(key) is None:
                self._displacements.lineages.forget(root)
                self._due.workloads.discard(key)
            self._due.roots.add(root)
            self._evaluator.ask()
            return
        held = self._workloads.observe_record(new)
        self._known_roots.setdefault(held.root.uid, Root(held.root, held.object.status.owner_chain))
        if old is None or old.object.spec != new.object.spec:
            self._due.roots.add(held.root.uid)
        self._due.workloads.add(held.key)

    def _intent_changed(self, old: IntentRecord | None, new: IntentRecord | None) -> None:
        if new is not None and new.namespace != self._namespace:
            report_foreign(self._context, new, self._namespace)
            return
        self._evaluator.ask()

    def _templates_changed(self, new: Record | None) -> None:
        """Count the claims of Workloads again that may request by a template that has come."""
        if new is None:
            return
        for record in self._watches.kueue.cache:
            if record.claims and record.namespace == new.namespace:
                self._queued.forget(record.uid)
                self._due.queued.add(record.uid)

    def _kueue_changed(self, old: KueueRecord | None, new: KueueRecord | None) -> None:
        record = new or old
        assert record is not None
        root = self._queued.root_of(record.uid)
        concerned = {*record.owner_uids, *([root.ref.uid] if root is not None else ())}
        if new is None:
            self._queued.forget(record.uid)
        else:
            self._due.queued.add(new.uid)
        for uid in tuple(concerned):
            pod = self._watches.pods.cache.get(uid)
            if pod is not None:
                concerned |= self._ownership.owners_of(pod)
        for uid in concerned:
            self._due.workloads_of(uid)
