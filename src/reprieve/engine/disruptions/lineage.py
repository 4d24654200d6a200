"""Lineage: which line of work an object belongs to, whatever its uid.

A victim that is deleted comes back as another object. Objects are one line of work

1. when they have the same root controller owner
2. without an owner, when namespace, queue and normalised pod template are the same
3. weakly, when one was made after the other had been displaced, with the same tenant and template:
   work that was submitted again under a new owner. Each displaced object is taken to come back
   once, so that a study of many jobs of one template is not one line of work; and what was made in
   the same second, or displaced at the same instant, was there beside it

The label `reprieve.dev/lineage` merges lineages of a namespace and splits none. Weak links count
against preemptors (`families.wide`), never for the protection of a victim (`families.narrow`).

Nothing is looked up here: `intake` says who owns what.
Source: specification of disruptions, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import intern
from typing import Final, NewType

from reprieve.units.instants import Nanos

__all__ = ["LINEAGE_LABEL", "Identity", "Lineage", "Party", "owner_lineage", "party_of"]

LINEAGE_LABEL: Final = "reprieve.dev/lineage"

Lineage = NewType("Lineage", str)

_UNKNOWN: Final = Nanos(0)


@dataclass(frozen=True, slots=True)
class Identity:
    """What is known of one object; what is empty is not known, or not there.

    `owner`: uid of the root controller owner. `template`: digest of the normalised pod template.
    `label`: the value of `LINEAGE_LABEL`.
    """

    uid: str
    namespace: str
    tenant: str
    owner: str = ""
    queue: str = ""
    template: str = ""
    label: str = ""
    created: Nanos = _UNKNOWN


@dataclass(frozen=True, slots=True)
class Party:
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
        # Of a hundred thousand parties that a ledger holds, few have tenants and templates of
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


def party_of(identity: Identity) -> Party:
    """Return the object's lineage, with its links to others."""
    space, template = identity.namespace, identity.template
    if identity.owner:
        lineage: str = owner_lineage(identity.owner)
    elif template:
        lineage = f"template/{space}/{identity.queue}/{template}"
    else:
        lineage = f"object/{identity.uid}"
    return Party(
        Lineage(lineage),
        identity.tenant,
        f"label/{space}/{identity.label}" if identity.label else "",
        f"{identity.tenant}/{template}" if template else "",
        identity.created,
    )
