"""Which pods of a Job have been counted, and when a failed one may be replaced.

A real Job controller keeps finished pods with a finalizer until they are counted; this one keeps
their uids. What a Job's status stated when this process first saw it stays counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from kubeworld.controllers.acts import Object
from kubeworld.controllers.job_failures import judge
from kubeworld.units.durations import MINUTE, SECOND

__all__ = ["Tally"]

_FIRST_BACKOFF: Final = 10 * SECOND
_LAST_BACKOFF: Final = 10 * MINUTE


@dataclass(slots=True)
class Tally:
    """Finished pods of one Job, by uid."""

    succeeded: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    earlier_succeeded: int = 0
    earlier_failed: int = 0
    # Pods that the controller deleted itself, or that the policy ignores; their end is no failure.
    removed: set[str] = field(default_factory=set)
    fatal: str = ""  # why the policy has the Job fail
    failures_in_a_row: int = 0
    failed_at: int = 0  # of the last failure

    @classmethod
    def started(
        cls,
        status: dict[str, Any],
        pods: Iterable[Object],
        now: int,
        policy: dict[str, Any] | None,
    ) -> Tally:
        """Return the tally of a Job that is seen for the first time."""
        tally = cls()
        tally.count(pods, now, policy)
        tally.failures_in_a_row = 0
        tally.earlier_succeeded = max(0, status.get("succeeded", 0) - len(tally.succeeded))
        tally.earlier_failed = max(0, status.get("failed", 0) - len(tally.failed))
        return tally

    def count(self, pods: Iterable[Object], now: int, policy: dict[str, Any] | None) -> None:
        """Count those that have ended since the last time, as the podFailurePolicy has it."""
        for pod in pods:
            uid, phase = pod["metadata"]["uid"], (pod.get("status") or {}).get("phase")
            if phase == "Succeeded" and uid not in self.succeeded:
                self.succeeded.add(uid)
                self.failures_in_a_row = 0
            elif phase == "Failed" and uid not in self.failed and uid not in self.removed:
                action, text = judge(policy, pod)
                if action == "Ignore":
                    self.removed.add(uid)
                    continue
                if action == "FailJob":
                    self.fatal = self.fatal or text
                self.failed.add(uid)
                self.failures_in_a_row += 1
                self.failed_at = now

    @property
    def all_succeeded(self) -> int:
        return self.earlier_succeeded + len(self.succeeded)

    @property
    def all_failed(self) -> int:
        return self.earlier_failed + len(self.failed)

    def backoff(self, now: int) -> int | None:
        """Return the nanoseconds until a failed pod may be replaced, None when it may be now."""
        if not self.failures_in_a_row:
            return None
        delay = min(_LAST_BACKOFF, _FIRST_BACKOFF << min(self.failures_in_a_row - 1, 10))
        rest = self.failed_at + delay - now
        return rest if rest > 0 else None
