"""What a run has to wait for although nothing moves: saves of work with notice, and delays.

A record in phase `Noticed` continues at its deadlines at the latest, as no pod in a copy of a
cluster saves. A preemptor that has to wait before it preempts (`preemptionDelay`) is looked at
again then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from kubeworld.units.instants import InvalidInstant, Nanos, parse_instant
from reprieve.api.reprieve import PREEMPTION_DELAY, IntentPhase
from reprieve.intake.preemption_delay import stated_delay
from reprieve.kube.bodies import Json
from reprieve.kube.resource import PREEMPTIONS, Resource
from reprieve.planes.common.process_settings import OperatorSettings
from reprieve.whatif.copy.overlay import Overlay

__all__ = ["Saving", "longest_delay"]

_KUEUE: Final = ("kueue.x-k8s.io", "v1beta2")
_DELAYING: Final = (
    Resource(*_KUEUE, "clusterqueues", "ClusterQueue", False),
    Resource(*_KUEUE, "workloadpriorityclasses", "WorkloadPriorityClass", False),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False),
)


def longest_delay(settings: OperatorSettings, overlay: Overlay) -> int:
    """Return the longest time that a preemptor may have to wait, in nanoseconds."""
    found = [settings.start.delay or 0]
    if settings.scheduling is not None:
        found.append(settings.scheduling.delay or 0)
    if settings.quota is not None:
        found.append(settings.quota.settings().delay)
    for resource in _DELAYING:
        for _, raw in overlay.naming(resource, PREEMPTION_DELAY.encode()):
            metadata = msgspec.json.decode(raw)["metadata"]
            found.append(stated_delay(metadata.get("annotations")) or 0)
    return max(found)


class Saving:
    """Until when work with notice may save, by the records of an overlay."""

    def __init__(self, overlay: Overlay) -> None:
        self._history = overlay.history
        self._followed = len(self._history)
        self._deadlines: dict[str, Nanos] = {}
        for _, raw in overlay.naming(PREEMPTIONS, IntentPhase.NOTICED.encode()):
            self._see(msgspec.json.decode(raw))

    def follow(self) -> None:
        """Apply what has changed since the last time."""
        changes, self._followed = self._history[self._followed :], len(self._history)
        for change in changes:
            if change.new is not None and change.new["kind"] == PREEMPTIONS.kind:
                self._see(change.new)

    @property
    def until(self) -> Nanos:
        """The last deadline, the epoch where no work saves."""
        return max(self._deadlines.values(), default=Nanos(0))

    def _see(self, record: Json) -> None:
        name = record["metadata"]["name"]
        self._deadlines.pop(name, None)
        if (record.get("status") or {}).get("phase") == IntentPhase.NOTICED:
            self._deadlines[name] = max(_deadlines(record), default=Nanos(0))


def _deadlines(record: Json) -> Iterator[Nanos]:
    for victim in record["spec"].get("victims") or ():
        try:
            yield parse_instant((victim.get("notice") or {}).get("deadline") or "")
        except InvalidInstant:
            continue  # it was not notified
