"""One GpuWorkload: facts together, the engine's step, and what has to be written for it.

Level-triggered: every call looks at everything that is known now. The status is written with the
resourceVersion of the version that was judged; a conflict means that something newer is on its way
through the watch, and the workload is looked at again. Preempting workloads are the executor's.
Source: specification of the idle plane, section 11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.core import KueueWorkload, Node
from reprieve.api.kaiwo import GpuWorkload
from reprieve.engine.idle.lifecycle import step
from reprieve.engine.idle.lifecycle_facts import Facts, MetricsHealth, Step
from reprieve.engine.idle.model import Phase, PodRow, Workload
from reprieve.engine.idle.samples import write_due
from reprieve.engine.idle.transitions import Action
from reprieve.execution.writes.statuses import StatusChange, write_status
from reprieve.intake.gpuworkloads import status_to_api, workload_row
from reprieve.intake.pods import lacks_quota, pod_row
from reprieve.kube.errors import ApiError, Conflict, NotFound
from reprieve.kube.resource import GPU_WORKLOADS
from reprieve.planes.idle.context import IdleContext, log
from reprieve.planes.idle.measures.scraper import PodKey
from reprieve.planes.idle.records import PodRecord
from reprieve.planes.idle.roots import RootFacts
from reprieve.planes.idle.tracking import Tracking
from reprieve.planes.idle.workloads import (
    TrackedWorkload,
    TrackedWorkloads,
)
from reprieve.settings.idle import overrides_of, resolve
from reprieve.units.ids import GpuWorkloadKey
from reprieve.units.references import Reference
from reprieve.wording.kaiwo import amounts_text, conditions_after, event_text, with_loop
from reprieve.wording.shared_devices import Sharing, with_sharing

__all__ = ["Reconciler", "row_of"]

_BACK_OFF = 5 * SECOND


def row_of(
    context: IdleContext,
    held: TrackedWorkload,
    pods: Iterable[PodRecord],
    kueue: Sequence[KueueWorkload] = (),
    nodes: Sequence[Node] | None = None,
    of_root: Sequence[KueueWorkload] = (),
) -> Workload:
    """Return the engine's row of a GpuWorkload with its owned pods.

    `kueue`: Kueue Workloads that its pods own, `of_root` those that its root owns.
    """
    settings = resolve(overrides_of(held.object.spec), context.tiers)
    tracked = held.object.spec.gpu_resources
    rows = [_pod_row(pod, tracked, kueue, nodes, of_root) for pod in pods]
    row = workload_row(held.object, settings, rows, held.released, held.status)
    return context.ranking.of(row)


class Reconciler:
    """Brings one GpuWorkload at a time up to date."""

    def __init__(
        self,
        context: IdleContext,
        workloads: TrackedWorkloads,
        tracking: Tracking,
        kueue_of: Callable[[str], Sequence[KueueWorkload]],
        again: Callable[[GpuWorkloadKey, Nanos], None],
        evaluate: Callable[[], None],
        loop_of: Callable[[Reference], str] = lambda root: "",
        shares_of: Callable[[Sequence[PodRecord]], Sharing | None] = lambda pods: None,
    ) -> None:
        """`loop_of`: in which loop of displacements the work of a root is, in words.

        `shares_of`: how the GPUs of a workload's pods are shared with others.
        """
        self._shares_of = shares_of
        self._loop_of = loop_of
        self._context = context
        self._workloads = workloads
        self._tracking = tracking
        self._kueue_of = kueue_of
        self._again = again
        self._evaluate = evaluate

    async def reconcile(
        self,
        held: TrackedWorkload,
        root: RootFacts,
        pods: Sequence[PodRecord],
        chain: str = "",
    ) -> None:
        """Look at one GpuWorkload and write what follows.

        Raises:
            ApiError: a write failed; to be tried again.
        """
        context, now = self._context, self._context.clock.wall()
        if held.status.phase is Phase.PREEMPTING:
            self._evaluate()
            return
        self._note_release(held, pods, now)
        if context.read_only:
            # Another operator decides: what its status states is what we continue from later.
            held.decided = None
            return
        self._workloads.settle(held)
        kueue = [workload for pod in pods for workload in self._kueue_of(pod.uid)]
        of_root = self._kueue_of(held.root.uid)
        workload = row_of(context, held, pods, kueue, of_root=of_root)
        if not workload.status.owner_chain and chain:
            status = replace(workload.status, owner_chain=chain)
            workload = replace(workload, status=status)
        facts = Facts(
            root=root.state,
            metrics=self._metrics_health(held, pods),
            quota_short=any(lacks_quota(w, held.object.spec.gpu_resources) for w in of_root),
        )
        outcome = step(workload, facts, context.start.policy, now)
        decided = self._workloads.remember(held, outcome.status)
        if context.dry_run:
            held.decided = None  # an operator beside it decides
        if held.absent:
            self._remember_absent(held, outcome)
            return
        try:
            if outcome.gpus != dict(held.object.spec.gpu_resources):
                spec = msgspec.structs.replace(held.object.spec, gpu_resources=outcome.gpus)
                await self._tracking.write_spec(held, spec)
            await self._write(held, workload, outcome, now, self._shares_of(pods))
        except (Conflict, NotFound):
            # Judged on an older version: the newer one comes through the watch.
            self._workloads.release(held, decided)
            self._again(held.key, Nanos(now + SECOND))
        except ApiError:
            self._workloads.release(held, decided)
            raise
        if outcome.action is Action.DELETE_GPU_WORKLOAD:
            await self._remove(held)
        elif outcome.action is Action.EVALUATE or outcome.phase_updated:
            self._evaluate()
        if outcome.wake is not None:
            self._again(held.key, outcome.wake)
        if outcome.backed_off:
            self._again(held.key, Nanos(now + _BACK_OFF))

    def _remember_absent(self, held: TrackedWorkload, outcome: Step) -> None:
        """Continue without an object to write to, until `tracking` has created one."""
        if held.over:
            self._workloads.drop(held)
            return
        spec = msgspec.structs.replace(held.object.spec, gpu_resources=outcome.gpus)
        held.object = msgspec.structs.replace(held.object, spec=spec)
        if outcome.action is Action.EVALUATE or outcome.phase_updated:
            self._evaluate()
        if outcome.wake is not None:
            self._again(held.key, outcome.wake)

    async def _write(
        self,
        held: TrackedWorkload,
        workload: Workload,
        outcome: Step,
        now: Nanos,
        sharing: Sharing | None,
    ) -> None:
        stored = held.object.status
        conditions = conditions_after(stored.conditions or (), outcome, workload, now)
        conditions = with_loop(conditions, self._loop_of(held.root), now)
        conditions = with_sharing(conditions, sharing, now)
        wanted = msgspec.structs.replace(
            status_to_api(outcome.status, conditions),
            policy=workload.settings.policy.value,
            gpus=amounts_text(outcome.gpus),
        )
        beside_samples = conditions != (stored.conditions or []) or (
            wanted.policy,
            wanted.gpus,
        ) != (stored.policy, stored.gpus)
        if not beside_samples and not write_due(held.written, outcome.status, now):
            return
        change = StatusChange.over(GPU_WORKLOADS, held.object.metadata, stored, wanted)
        if change is None:
            return
        answer = await write_status(self._context.full_client, change, GpuWorkload)
        before = workload.status.phase
        self._workloads.observe(answer)
        if outcome.phase_updated:
            log.info(
                "%s: %s -> %s (%s)",
                held.key,
                before or "new",
                outcome.status.phase,
                "; ".join(event_text(event, workload).message for event in outcome.events),
            )
        for event in outcome.events:
            self._context.announce(held.ref, event_text(event, workload))

    async def _remove(self, held: TrackedWorkload) -> None:
        log.info("%s is deleted: its retention has expired", held.key)
        try:
            await self._context.client.delete(
                GPU_WORKLOADS, held.ref.namespace, held.ref.name, uid=held.ref.uid
            )
        except (Conflict, NotFound):
            return

    def _note_release(self, held: TrackedWorkload, pods: Sequence[PodRecord], now: Nanos) -> None:
        if pods:
            held.had_pods, held.released = True, None
        elif held.had_pods and held.released is None:
            held.released = now

    def _metrics_health(self, held: TrackedWorkload, pods: Sequence[PodRecord]) -> MetricsHealth:
        poll = self._workloads.poll
        if poll is None:
            return MetricsHealth.OK
        namespace = held.ref.namespace
        if any(PodKey(namespace, pod.name) in poll.unreachable for pod in pods):
            return MetricsHealth.UNREACHABLE
        names = {pod.name for pod in pods}
        seen = poll.readings.get(namespace, {})
        bad = [each for each in poll.impossible.get(namespace, ()) if each.pod in names]
        if bad:
            return MetricsHealth.OLD if all(each.old for each in bad) else MetricsHealth.INVALID
        if poll.failing and not any(name in seen for name in names):
            return MetricsHealth.UNREACHABLE
        return MetricsHealth.OK


def _pod_row(
    pod: PodRecord,
    tracked: Iterable[str],
    kueue: Sequence[KueueWorkload],
    nodes: Sequence[Node] | None,
    of_root: Sequence[KueueWorkload],
) -> PodRow:
    if pod.pending is None:
        return pod.row
    return pod_row(
        pod.pending, pod.row.gpus, tracked, kueue, nodes, of_root, pod.row.asks, pod.claimed
    )
