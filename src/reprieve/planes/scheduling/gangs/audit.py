"""What has happened to each workload, under the names of Koordinator's audit records.

The last records of every workload are kept and shown over HTTP, with the diagnosis of its last
attempt at preemption; each record is a line of the log as well. Source: specification of gang jobs,
section 9.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from kubeworld.units.instants import Nanos, format_instant

__all__ = ["Audit", "Happened"]

log: Final = logging.getLogger("reprieve.scheduling")

_RECORDS: Final = 100  # per workload
_WORKLOADS: Final = 2_000


class Happened(StrEnum):
    """Kinds of records."""

    CREATE = "create"
    GATED = "gatedByQueueAdmission"
    PASSED = "admissionPassed"
    NOMINATED = "preemptNominated"
    DELETING = "preemptVictimDeleting"
    FAILED = "preemptFailure"
    VICTIMS_GONE = "victimAllDeleted"
    ALL_ATTEMPTED = "gangAllPodsAlreadyAttempted"
    NOT_SCHEDULED = "scheduleFailure"
    SATISFIED = "gangMinMemberSatisfied"
    SCHEDULED = "scheduled"


@dataclass(slots=True)
class _Workload:
    records: deque[dict[str, str]] = field(default_factory=lambda: deque(maxlen=_RECORDS))
    diagnosis: Mapping[str, Any] | None = None


class Audit:
    """Records by workload: a gang group's id, or namespace/name of a pod."""

    def __init__(self) -> None:
        self._workloads: OrderedDict[str, _Workload] = OrderedDict()

    def record(self, workload: str, what: Happened, now: Nanos, message: str = "") -> None:
        """Keep a record; one that only repeats the last is left out. `now`: wall clock."""
        found = self._of(workload)
        last = found.records[-1] if found.records else {}
        if (last.get("type"), last.get("message")) == (what, message):
            return
        found.records.append({"time": format_instant(now), "type": str(what), "message": message})
        log.debug("audit %s: %s %s", workload, what, message)

    def diagnose(self, workload: str, diagnosis: Mapping[str, Any]) -> None:
        """Keep the diagnosis of the last attempt."""
        self._of(workload).diagnosis = diagnosis

    def view(self, workload: str) -> dict[str, Any] | None:
        """Return what is known of a workload."""
        found = self._workloads.get(workload)
        if found is None:
            return None
        return {"records": list(found.records), "diagnosis": found.diagnosis}

    def _of(self, workload: str) -> _Workload:
        found = self._workloads.setdefault(workload, _Workload())
        self._workloads.move_to_end(workload)
        if len(self._workloads) > _WORKLOADS:
            self._workloads.popitem(last=False)
        return found
