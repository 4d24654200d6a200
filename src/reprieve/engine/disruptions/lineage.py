"""Lineage: which lineage an object belongs to, whatever its uid.

A victim that is deleted comes back as another object. Objects are one lineage

1. when they have the same root controller owner, or without one are of the same gang
2. weakly, when one was made after the other was away, with the same tenant and template: work that
   was submitted again. Away is a pod of its own that was displaced, and everything else that was
   displaced (or failed) and then ended without having run again. Each of these comes back once at
   the most, so that submissions of one template that are beside each other are independent

The label `reprieve.dev/lineage` merges lineages of a namespace and splits none. Weak links count
against preemptors (`families.wide`), never for the protection of a victim (`families.narrow`).

Nothing is looked up here: `intake` states who owns what.
Source: specification of disruptions, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import intern
from typing import Final, NewType

from kubeworld.units.instants import Nanos

__all__ = [
    "LINEAGE_LABEL",
    "Identity",
    "Lineage",
    "Participant",
    "goes_for_good",
    "owner_lineage",
    "participant_of",
]

LINEAGE_LABEL: Final = "reprieve.dev/lineage"

Lineage = NewType("Lineage", str)

_UNKNOWN: Final = Nanos(0)
_OBJECT: Final = "object/"
_STAYING: Final = "staying/"


@dataclass(frozen=True, slots=True)
class Identity:
    """What is known of one object; what is empty is not known, or not there.

    `owner`: uid of the root controller owner. `group`: the name of its gang. `template`: digest of
    the normalised pod template, in its queue. `label`: the value of `LINEAGE_LABEL`. `stays`: it is
    there still when it was displaced.
    """

    uid: str
    namespace: str
    tenant: str
    owner: str = ""
    queue: str = ""
    template: str = ""
    label: str = ""
    created: Nanos = _UNKNOWN
    group: str = ""
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Participant:
    """One side of a displacement: a lineage, and by what else it is known.

    `merged`: the lineage that the label gives, empty without. `weak`: what work has in common that
    was submitted again, empty where nothing is known. `created`: when this object was made.
    """

    lineage: Lineage
    tenant: str = ""
    merged: str = ""
    weak: str = ""
    created: Nanos = _UNKNOWN

    def __post_init__(self) -> None:
        # Of a hundred thousand participants that a ledger holds, few have tenants and templates of
        # their own.
        object.__setattr__(self, "tenant", intern(self.tenant))
        object.__setattr__(self, "weak", intern(self.weak))

    @property
    def names(self) -> tuple[str, str, str]:
        """By what it may be known as the same work; what is empty is not."""
        return self.lineage, self.merged, self.weak


def owner_lineage(uid: str) -> Lineage:
    """Return the lineage of all that has this root controller owner."""
    return Lineage(f"owner/{uid}")


def goes_for_good(lineage: str) -> bool:
    """Return whether a lineage is one object that does not come back once it was displaced."""
    return lineage.startswith(_OBJECT)


def participant_of(identity: Identity) -> Participant:
    """Return the object's lineage, with its links to others."""
    space, template = identity.namespace, identity.template
    if identity.owner:
        lineage: str = owner_lineage(identity.owner)
    elif identity.group:
        lineage = f"group/{space}/{identity.group}"
    else:
        lineage = f"{_STAYING if identity.stays else _OBJECT}{identity.uid}"
    if template and not identity.owner:
        template = f"{identity.queue}/{template}"
    return Participant(
        Lineage(lineage),
        identity.tenant,
        f"label/{space}/{identity.label}" if identity.label else "",
        f"{identity.tenant}/{template}" if template else "",
        identity.created,
    )
