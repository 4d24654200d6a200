"""Workloads made of shared parts.

Thousands of Workloads come from a few templates, wait in a few queues and state the same of
themselves, and those that are finished stay. What is equal in them is kept once, which needs less
than half of the memory. Parts are immutable, so that no reader sees a difference. What is
remembered is bounded: beyond that it is forgotten, and parts are shared anew from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from reprieve.api.core import ObjectMeta
from reprieve.api.kueue import Condition, Workload, WorkloadStatus

__all__ = ["SharedParts"]

_KEPT: Final = 20_000


@dataclass(slots=True)
class SharedParts:
    """The parts of all Workloads of a cache."""

    _encoder: msgspec.msgpack.Encoder = field(default_factory=msgspec.msgpack.Encoder)
    _parts: dict[Hashable, Any] = field(default_factory=dict)

    def workload(self, workload: Workload) -> Workload:
        """Return the same Workload."""
        return Workload(
            metadata=self._metadata(workload.metadata),
            spec=self._encoded(workload.spec),
            status=self._status(workload.status),
        )

    def _metadata(self, metadata: ObjectMeta) -> ObjectMeta:
        created, labels = metadata.creation_timestamp, metadata.labels
        return replace(
            metadata,
            namespace=sys.intern(metadata.namespace),
            creation_timestamp=None if created is None else sys.intern(created),
            labels=None if labels is None else self._shared((*labels.items(),), labels),
        )

    def _status(self, status: WorkloadStatus) -> WorkloadStatus:
        conditions, admission = status.conditions, status.admission
        if conditions is None and admission is None:
            return status
        return replace(
            status,
            conditions=None if conditions is None else [_condition(each) for each in conditions],
            admission=None if admission is None else self._encoded(admission),
        )

    def _encoded(self, part: Any) -> Any:
        return self._shared((type(part), self._encoder.encode(part)), part)

    def _shared(self, key: Hashable, part: Any) -> Any:
        found = self._parts.get(key)
        if found is None:
            if len(self._parts) >= _KEPT:
                self._parts.clear()
            found = self._parts[key] = part
        return found


def _condition(condition: Condition) -> Condition:
    return Condition(
        sys.intern(condition.type),
        sys.intern(condition.status),
        sys.intern(condition.reason),
        sys.intern(condition.message),
        sys.intern(condition.last_transition_time),
        condition.observed_generation,
    )
