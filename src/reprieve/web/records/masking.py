"""What a viewer may know of the objects that a record names.

Work of a namespace that he sees is named. Other work has the number by which his own Disruptions
know it, where the key to these numbers can be read, and no number where it cannot. Names of records
are made of the preemptor's uid, so that a record is known by its plan's id to who may not know the
preemptor. A record in which nothing of his has a part does not exist for him. Source: specification
of disruptions, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reprieve.api.reprieve import ObjectRef, Preemption
from reprieve.web.tables import Viewer
from reprieve.wording.displacements import NOBODY, known_as

__all__ = ["Masking", "Shown", "address_of", "home_of", "is_visible"]


@dataclass(frozen=True, slots=True)
class Shown:
    """How an object is shown: by its unit's id, or as a text alone."""

    text: str
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Masking:
    """Shows objects to one viewer, about one record.

    Attributes:
        viewer: whom.
        home: the namespace of his that he is shown as; numbers of other work are made for it.
        key: to the numbers; empty where it cannot be read.
        unit_of: what people call an object of a lineage.
    """

    viewer: Viewer
    home: str
    key: bytes
    unit_of: Callable[[ObjectRef, str], str]

    def shown(self, ref: ObjectRef, lineage: str = "", unit: str = "") -> Shown:
        """Return how an object is shown; `unit`: its id, where it is known already."""
        if self.viewer.sees(ref.namespace):
            called = unit or self.unit_of(ref, lineage)
            return Shown(called, called)
        return Shown(self.masked(lineage or ref.uid))

    def masked(self, lineage: str) -> str:
        """Return how work of another namespace is shown."""
        return known_as(self.key if self.home else b"", self.home, lineage)

    def preemptor(self, record: Preemption, reported: str = "") -> Shown:
        """Return the preemptor; `reported`: as a Disruption of the viewer's states it."""
        ref = record.spec.preemptor
        if ref is None:
            return Shown(NOBODY)
        if not self.viewer.sees(ref.namespace) and reported:
            return Shown(reported)
        return self.shown(ref, record.spec.preemptor_lineage)


def home_of(record: Preemption, viewer: Viewer) -> str:
    """Return the first namespace of the viewer's that has a part in a record, else none."""
    return min((each for each in _namespaces(record) if viewer.sees(each)), default="")


def is_visible(record: Preemption, viewer: Viewer) -> bool:
    """Return whether a viewer may know that there is this record."""
    return viewer.sees_all or any(viewer.sees(each) for each in _namespaces(record))


def address_of(record: Preemption, viewer: Viewer) -> str:
    """Return by what a viewer knows a record: its name, or its plan's id."""
    preemptor = record.spec.preemptor
    known = viewer.sees_all or (preemptor is not None and viewer.sees(preemptor.namespace))
    return record.metadata.name if known else record.spec.plan_id


def _namespaces(record: Preemption) -> Iterable[str]:
    preemptor = record.spec.preemptor
    if preemptor is not None:
        yield preemptor.namespace
    for each in record.spec.victims:
        yield each.root.namespace
