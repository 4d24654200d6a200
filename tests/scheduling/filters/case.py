"""One case of the filters' promises: a cluster, a gang that preempts, and the whole outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reprieve.engine.cluster.rows import Change, PodRow
from reprieve.engine.placement.profile import FilterName
from tests.engine.builders import flat, group, pod, pod_class

LOW = 0
HIGH = 10


class Promise(StrEnum):
    """What a case shows."""

    BLOCKS = "blocks before preemption"
    HELPS = "evicting helps"
    REFUSED = "a reprieve is refused"
    GRANTED = "a reprieve is granted"


@dataclass(frozen=True)
class Case:
    """A cluster with the gang `g` pending, and what its attempt comes to.

    `says`: the fit text of the first member that found no node. `victims` and `kept`: all pods of a
    priority below the gang's. `refused`: the filter that keeps a victim from returning, by the
    victim's (the unit's first) pod. `nodes`: nominated, in the order of the members.
    """

    filter: FilterName
    promise: Promise
    story: str
    rows: tuple[Change | Iterable[Change], ...]
    says: str
    kept: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()
    refused: Mapping[str, FilterName] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    def changes(self) -> list[Change]:
        """The rows, one after the other."""
        return flat(self.rows)


def preemptor(
    size: int, *, facts: Iterable[Mapping[str, Any]] = (), **spec: Any
) -> tuple[Change, ...]:
    """The gang `g` of priority 10, all of whose pods are needed.

    `facts`: more facts of each pod's row. `labels` are those of all pods, the rest is their spec.
    """
    labels = spec.pop("labels", None)
    own = [*facts] or [{}] * size
    entry = pod_class(**spec)
    return (
        group("g", priority=HIGH, min_count=size),
        *(
            pod(f"g-{i}", group="g", priority=HIGH, pod_class=entry, labels=labels, **own[i])
            for i in range(size)
        ),
    )


def placed(name: str, on: str, priority: int = LOW, **more: Any) -> PodRow:
    """A pod that runs on a node."""
    return pod(name, node=on, priority=priority, **more)
