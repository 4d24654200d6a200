"""What is known of a root: its pods, what is lost with them, and what its owner annotated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubeworld.units.clock import Clock
from kubeworld.units.durations import SECOND
from reprieve.api.reprieve import ON_PREEMPTION, Action
from reprieve.engine.idle.model import Phase
from reprieve.engine.lost_work import lost_device_seconds
from reprieve.engine.notice.granting import MOST
from reprieve.planes.idle.limits import PodLimits
from reprieve.planes.idle.ownership import Ownership
from reprieve.planes.idle.roots import Roots
from reprieve.planes.idle.workloads import TrackedWorkloads
from reprieve.units.references import Reference

__all__ = ["RootAnswers"]

_TRACKED: Final = (Phase.PENDING_OTHER, Phase.PENDING_GPU, Phase.ACTIVE, Phase.IDLE)


class RootAnswers:
    """Answers about roots. `limits`: those of classes and queues, None where none are read."""

    def __init__(
        self,
        workloads: TrackedWorkloads,
        ownership: Ownership,
        roots: Roots,
        limits: PodLimits | None,
        clock: Clock,
    ) -> None:
        self._workloads = workloads
        self._roots = roots
        self._limits = limits
        self._clock = clock
        self.pods_of = ownership.pods_of

    def pods_left(self, root: Reference) -> bool:
        """Return whether pods that an eviction ends exist; a revived root's new ones do not."""
        pods = self.pods_of(root)
        revived = any(held.status.phase in _TRACKED for held in self._workloads.of_root(root.uid))
        return any(pod.row.terminating or not revived for pod in pods)

    def lost_with(self, root: Reference) -> int:
        """Return the device-seconds of work that are lost with a root's pods.

        Time that the root was idle is no work.
        """
        now = self._clock.wall() // SECOND
        for held in self._workloads.of_root(root.uid):
            if held.status.idle_since is not None:
                now = min(now, held.status.idle_since // SECOND)
        return sum(
            lost_device_seconds(
                None if pod.row.started is None else pod.row.started // SECOND,
                pod.checkpoint,
                sum(pod.row.gpus.values()),
                now,
            )
            for pod in self.pods_of(root)
            if pod.occupies
        )

    def annotations_of(self, root: Reference) -> Mapping[str, str]:
        """Return the annotations of a root, none while it is not known."""
        facts = self._roots.facts(root.uid)
        return {} if facts is None else facts.annotations

    def action_of(self, root: Reference) -> Action:
        """Return what happens to the root; what is no action (`Tracking` has it) is the default."""
        text = self.annotations_of(root).get(ON_PREEMPTION, "")
        try:
            return Action(text) if text else Action.DELETE
        except ValueError:
            return Action.DELETE

    def notice_allowed(self, root: Reference) -> int:
        """Return the longest notice that the root's classes and queues allow, in nanoseconds."""
        return MOST if self._limits is None else self._limits.notice(self.pods_of(root))
