"""Which roots are tracked: a GpuWorkload for each that opted in, and its overrides.

A root is tracked while its own or its namespace's annotations have any key with the prefix. What
the annotations state is written to the GpuWorkload's spec and follows them; fields that were edited
by hand stay. When all annotations of a root are removed, so is the GpuWorkload that was made for
them. A value that is not accepted is named in a Warning event on the root, and the next tier
applies. Source: specification of the idle plane, sections 4, 5, 6 and 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos
from kubeworld.units.untrusted import cut, shown
from reprieve.api.kaiwo import DERIVED_ANNOTATION, GpuWorkload, GpuWorkloadSpec
from reprieve.api.reprieve import ON_PREEMPTION, Action
from reprieve.engine.idle.discovery import Root, gpu_workload_name
from reprieve.engine.idle.lifecycle_facts import Present
from reprieve.engine.idle.model import Phase
from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.intake.gpuworkloads import initial_status, new_gpu_workload, status_to_api
from reprieve.kube.bodies import merge_changes
from reprieve.kube.errors import AlreadyExists, Conflict, NotFound
from reprieve.kube.resource import GPU_WORKLOADS
from reprieve.planes.idle.announcements import (
    report_overridden,
    report_rejected_spec,
    report_unknown_action,
)
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.roots import RootFacts
from reprieve.planes.idle.workloads import (
    TrackedWorkload,
    TrackedWorkloads,
    key_of,
)
from reprieve.settings.idle import (
    Derived,
    derive,
    follow,
    in_force,
    overridden,
    overrides_of,
    read_derived,
    resolve,
    spec_tier,
    with_overrides,
    write_derived,
)
from reprieve.units.ids import GpuWorkloadKey
from reprieve.units.references import Reference
from reprieve.wording.events import EventText

__all__ = ["Tracking"]

_UNDISTURBED: Final = 10 * MINUTE


class Tracking:
    """Makes, follows and ends GpuWorkloads.

    `changed` has a GpuWorkload looked at; `overtaken` has a root, by uid, followed again soon: what
    its annotations state met a newer version of its GpuWorkload; `later` at a wall instant.
    """

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        namespace_annotations: Callable[[str], Mapping[str, str]],
        changed: Callable[[GpuWorkloadKey], None],
        overtaken: Callable[[str], None],
        later: Callable[[str, Nanos], None],
    ) -> None:
        self._context = context
        self._workloads = workloads
        self._namespace_annotations = namespace_annotations
        self._changed = changed
        self._overtaken = overtaken
        self._later = later

    async def follow(self, root: Root, facts: RootFacts, gpus: Mapping[str, int]) -> None:
        """Bring the GpuWorkload of a root in line with the annotations in force.

        `gpus`: what its pods request; empty when it has no GPU pod.

        Raises:
            ApiError: the API server failed; to be tried again.
        """
        derived = self._derived(root.ref, facts)
        self._report(root, derived)
        action = facts.annotations.get(ON_PREEMPTION)
        if derived.tracked and action and action not in set(Action):
            report_unknown_action(self._context, root.ref, action)
        if self._context.read_only:
            return
        held = self._workloads.of_root(root.ref.uid)
        absent = next((each for each in held if each.absent), None)
        if held and absent is None:
            for workload in held:
                await self._bring_in_line(workload, derived)
            return
        present = isinstance(facts.state, Present) and facts.state.uid == root.ref.uid
        wanted = derived.tracked and bool(gpus) and present
        if absent is not None and not wanted:
            self._workloads.drop(absent)
        elif wanted and (absent is None or self._is_due(absent)):
            await self._create(root, derived, gpus)

    def wanted(self, root: Reference, facts: RootFacts) -> bool:
        """Whether the annotations in force opt the root in."""
        return self._derived(root, facts).tracked

    def _derived(self, root: Reference, facts: RootFacts) -> Derived:
        return derive(
            facts.annotations,
            self._namespace_annotations(root.namespace),
            self._context.start.policy.literal,
            str(root),
            f"Namespace/{root.namespace}",
        )

    def _is_due(self, absent: TrackedWorkload) -> bool:
        """Return whether one that a user has deleted is created again now, ever less often."""
        now = self._context.clock.monotonic()
        if now - absent.made_at > _UNDISTURBED:
            absent.made_again = 0
        pause = min(SECOND << min(absent.made_again, 9) >> 1, MINUTE) if absent.made_again else 0
        if (left := absent.made_at + pause - now) > 0:
            self._later(absent.root.uid, Nanos(self._context.clock.wall() + left))
            return False
        absent.made_again, absent.made_at = absent.made_again + 1, now
        log.info("%s was deleted by a user; it continues as %s", absent.key, absent.status.phase)
        return True

    async def _create(self, root: Root, derived: Derived, gpus: Mapping[str, int]) -> None:
        made = new_gpu_workload(root, root.ref.namespace, gpus)
        made = msgspec.structs.replace(
            made,
            metadata=msgspec.structs.replace(
                made.metadata, annotations={DERIVED_ANNOTATION: write_derived(derived.overrides)}
            ),
            spec=with_overrides(made.spec, derived.overrides),
        )
        name = gpu_workload_name(root.ref.kind, root.ref.name, root.ref.uid)
        try:
            stored = await self._context.client.create(GPU_WORKLOADS, made, GpuWorkload)
        except AlreadyExists:
            # Another replica, Kaiwo, or a write of ours without an answer: the watch shows it.
            stored = await self._context.client.get(
                GPU_WORKLOADS, root.ref.namespace, name, GpuWorkload
            )
        if not stored.status.phase:
            stored = await self._first_status(stored, root)
        log.info("tracking %s as %s/%s", root.ref, root.ref.namespace, name)
        self._workloads.observe(stored)
        self._changed(key_of(root.ref.namespace, name))

    async def _first_status(self, stored: GpuWorkload, root: Root) -> GpuWorkload:
        # The status of one that a user has deleted continues.
        held = self._workloads.observe(stored)
        wanted = status_to_api(held.carried or initial_status(root))
        change = StatusChange.over(GPU_WORKLOADS, stored.metadata, stored.status, wanted)
        if change is None:
            return stored
        try:
            return await write_status(self._context.full_client, change, GpuWorkload)
        except (Conflict, NotFound):
            return stored  # it has been looked at already: that status is newer

    async def _bring_in_line(self, workload: TrackedWorkload, derived: Derived) -> None:
        literal = self._context.start.policy.literal.annotations_read_once
        for rejected in spec_tier(workload.object.spec).rejected:
            report_rejected_spec(self._context, workload.ref, rejected)
        if workload.over or workload.status.phase is Phase.PREEMPTING or literal:
            return
        made_by_us = DERIVED_ANNOTATION in (workload.object.metadata.annotations or {})
        if not derived.tracked:
            if made_by_us:
                await self._end(workload)
            return
        base = read_derived(workload.object.metadata.annotations)
        spec = workload.object.spec
        wanted = with_overrides(spec, follow(overrides_of(spec), base, derived.overrides))
        text = write_derived(derived.overrides)
        if wanted != spec or base != derived.overrides:
            await self.write_spec(workload, wanted, {DERIVED_ANNOTATION: text})
        for one in overridden(overrides_of(wanted), derived.overrides):
            report_overridden(self._context, workload.ref, workload.root, one)

    async def write_spec(
        self,
        workload: TrackedWorkload,
        wanted: GpuWorkloadSpec,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Write a spec over the version that is held; a conflict is looked at again."""
        metadata: dict[str, Any] = {
            "uid": workload.ref.uid,
            "resourceVersion": workload.object.metadata.resource_version,
        }
        if annotations:
            metadata["annotations"] = dict(annotations)
        changes = merge_changes(workload.object.spec, wanted)
        patch = {"metadata": metadata, **({"spec": changes} if changes else {})}
        try:
            stored = await self._context.client.patch(
                GPU_WORKLOADS, workload.ref.namespace, workload.ref.name, patch, GpuWorkload
            )
        except (Conflict, NotFound):
            self._changed(workload.key)
            self._overtaken(workload.root.uid)
            return
        self._workloads.observe(stored)
        self._changed(workload.key)

    async def _end(self, workload: TrackedWorkload) -> None:
        log.info("%s opted out: its GpuWorkload %s is deleted", workload.root, workload.key)
        try:
            await self._context.client.delete(
                GPU_WORKLOADS,
                workload.ref.namespace,
                workload.ref.name,
                uid=workload.ref.uid,
                resource_version=workload.object.metadata.resource_version,
            )
        except (Conflict, NotFound):
            self._changed(workload.key)
            self._overtaken(workload.root.uid)

    def _report(self, root: Root, derived: Derived) -> None:
        if not derived.tracked:
            return
        settings = resolve(derived.overrides, self._context.tiers)
        texts: Sequence[tuple[str, str]] = [
            *(
                (
                    "InvalidAnnotation",
                    cut(
                        f"{rejected.where} is {shown(rejected.value)}; accepted: "
                        f"{rejected.accepted}; in force: {in_force(settings, rejected.setting)}"
                    ),
                )
                for rejected in derived.rejected
            ),
            *(
                ("UnexpectedAnnotation", f"{notice.where} is {shown(notice.value)}: {notice.text}")
                for notice in derived.notices
            ),
        ]
        for reason, message in texts:

            def emit(reason: str = reason, message: str = message) -> None:
                log.warning("%s/%s: %s", root.ref.namespace, root.ref.name, message)
                self._context.announce(root.ref, EventText("Warning", reason, message))

            self._context.log_once(f"{root.ref.uid}/{message}", emit)
