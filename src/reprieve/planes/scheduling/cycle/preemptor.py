"""The preemptor, as far as its queue entry, its victims' texts and the events about it state it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reprieve.engine.cluster.rows import GroupRow, PodRow
from reprieve.engine.scheduling.outcome import Unit
from reprieve.units.ids import Uid
from reprieve.wording.events import EventText

__all__ = ["Preemptor"]


@dataclass(frozen=True, slots=True)
class Preemptor:
    """`key` of its queue entry, its kind's word, its target, and what events relate to."""

    unit: Unit
    key: str
    kind: str
    uid: Uid
    scheduler_name: str
    target: str
    about: PodRow | GroupRow
    message: str = ""  # of its victims' condition, where that is not kube-scheduler's own
    preempted: Callable[[str], EventText] | None = None  # a victim's event, by its node

    @property
    def called(self) -> str:
        """Return how log lines name it."""
        return f"{self.about.namespace}/{self.about.name}"
