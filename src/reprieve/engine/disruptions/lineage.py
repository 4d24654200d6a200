"""Lineage: which line of work an object belongs to, whatever its uid.

A victim that is deleted comes back as another object. Objects are one line of work

1. when they have the same root controller owner
2. without an owner, when namespace, queue and normalised pod template are the same
3. weakly, when one was made after the other had been displaced, with the same tenant and template:
   work that was submitted again under a new owner. Each displaced object is taken to come back
   once, so that a study of many jobs of one template is not one line of work; and what was made in
   the same second, or displaced at the same instant, was there beside it

The label `reprieve.dev/lineage` merges lineages of a namespace and splits none. Weak links count
against preemptors (`Families.wide`), never for the protection of a victim (`Families.narrow`).

Nothing is looked up here: `intake` says who owns what. All operations take constant time.
Source: specification of disruptions, section 1.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from sys import intern
from typing import Final, NewType

from reprieve.units.durations import SECOND
from reprieve.units.instants import Nanos

__all__ = [
    "LINEAGE_LABEL",
    "Families",
    "Identity",
    "Lineage",
    "Party",
    "owner_lineage",
    "party_of",
]

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


class Families:
    """Follows which lineages are one, told in the order of time.

    The name of a family is that of its member that was told first.
    """

    def __init__(self) -> None:
        self._narrow: dict[str, str] = {}  # those with a label only
        self._wide: dict[str, str] = {}
        # By weak link: who was displaced when, and has not come back as far as is known; in order.
        self._displaced: dict[str, OrderedDict[Lineage, Nanos]] = {}
        self._created: dict[Lineage, int] = {}  # seconds, of those that were displaced

    def learn(self, party: Party, at: Nanos) -> str:
        """Take note of an object that took part in a displacement, and was there before it.

        Return its family with weak links.
        """
        lineage = party.lineage
        new = lineage not in self._wide
        if new:
            self._wide[lineage] = lineage
        if party.merged:
            for parents in (self._narrow, self._wide):
                parents.setdefault(lineage, lineage)
                parents.setdefault(party.merged, party.merged)
                _join(parents, lineage, party.merged)
        if new and party.weak:
            former = self._former(party, at)
            if former is not None:
                del self._displaced[party.weak][former]
                _join(self._wide, former, lineage)
        return _root(self._wide, lineage)

    def displaced(self, victim: Party, at: Nanos) -> None:
        """Take note that an object has to make way; it may come back as another one."""
        if victim.weak:
            # Of a plain dict the first entry costs as much as those that were taken out before it.
            alike = self._displaced.setdefault(victim.weak, OrderedDict())
            alike.pop(victim.lineage, None)
            alike[victim.lineage] = at
            self._created[victim.lineage] = victim.created // SECOND

    def narrow(self, party: Party) -> str:
        """Return the family by owner, template and label."""
        return self._narrow_of(self._narrow, party)

    def wide(self, party: Party) -> str:
        """Return the family with weak links."""
        if party.lineage in self._wide:
            return _root(self._wide, party.lineage)
        former = self._former(party) if party.weak else None
        return self._narrow_of(self._wide, party) if former is None else _root(self._wide, former)

    def _narrow_of(self, parents: dict[str, str], party: Party) -> str:
        known = party.lineage if party.lineage in parents else party.merged
        return _root(parents, known) if known in parents else party.lineage

    def _former(self, party: Party, before: Nanos | None = None) -> Lineage | None:
        """Return who is taken to have come back as this object, which was there `before` that."""
        # API servers give the instants of creation in whole seconds.
        created = party.created // SECOND
        alike = self._displaced.get(party.weak)
        for lineage, at in alike.items() if alike else ():
            if at // SECOND > created or (before is not None and at >= before):
                return None
            if lineage != party.lineage and self._created.get(lineage) != created:
                return lineage
        return None


def _root(parents: dict[str, str], name: str) -> str:
    while parents[name] != name:
        parents[name] = parents[parents[name]]
        name = parents[name]
    return name


def _join(parents: dict[str, str], first: str, second: str) -> None:
    one, other = _root(parents, first), _root(parents, second)
    if one != other:
        parents[other] = one
