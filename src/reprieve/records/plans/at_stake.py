"""What a plan costs whom: lineages and what they lose, as a record keeps it for each unit.

The plane that commits a plan states it of each victim, while its objects are still there; the
record keeps it with the first victim of each unit, so that the unit's story can be written from the
record alone, by another process too. Source: specification of disruptions, section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from reprieve.api.reprieve import Victim
from reprieve.engine.disruptions.lineage import Participant

__all__ = ["AtStake", "Stake", "lineage_of", "with_stakes"]


@dataclass(frozen=True, slots=True)
class Stake:
    """One victim: its lineage, and the device-seconds that it loses."""

    lineage: str
    lost_device_seconds: int = 0


@dataclass(frozen=True, slots=True)
class AtStake:
    """A whole plan: the preemptor's lineage, and the victims in their order."""

    preemptor: str
    victims: Sequence[Stake]


def lineage_of(participant: Participant) -> str:
    """Return what a lineage is called: by its label, where it has one."""
    return participant.merged or participant.lineage


def with_stakes(victims: Sequence[Victim], stakes: Sequence[Stake]) -> list[Victim]:
    """Return the victims with what is at stake; `stakes` are parallel to them.

    A unit of several lineages is called by the first in the order of names.
    """
    lineages: dict[str, set[str]] = {}
    lost: dict[str, int] = {}
    for victim, stake in zip(victims, stakes, strict=True):
        if victim.unit:
            lineages.setdefault(victim.unit, set()).add(stake.lineage)
            lost[victim.unit] = lost.get(victim.unit, 0) + stake.lost_device_seconds
    found = []
    for victim, stake in zip(victims, stakes, strict=True):
        lineage, amount = stake.lineage, stake.lost_device_seconds
        if victim.unit:
            names = lineages.pop(victim.unit, None)
            if names is None:
                found.append(victim)
                continue
            lineage, amount = min(names), lost[victim.unit]
        found.append(replace(victim, lineage=lineage, lost_device_seconds=amount))
    return found
