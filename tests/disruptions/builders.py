"""Displacements in few words: seconds after a start, and names of lineages."""

from __future__ import annotations

from typing import Any, Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.lineage import Identity, Lineage, Participant
from reprieve.engine.disruptions.questions import Question

NOW: Final = 1_000_000


def at(seconds: float) -> Nanos:
    return Nanos(NOW * SECOND + int(seconds * SECOND))


def participant(name: str, **links: Any) -> Participant:
    return Participant(Lineage(name), **links)


def identity(uid: str = "u", namespace: str = "ns", **facts: Any) -> Identity:
    return Identity(uid, namespace, tenant=namespace, **facts)


def displaced(
    seconds: float, preemptor: str | Participant, victim: str | Participant, **facts: Any
) -> Displacement:
    one = participant(preemptor) if isinstance(preemptor, str) else preemptor
    other = participant(victim) if isinstance(victim, str) else victim
    facts.setdefault("actor", Actor.QUOTA)
    return Displacement(at(seconds), preemptor=one, victim=other, **facts)


def question(
    seconds: float, preemptor: str | Participant, victim: str | Participant, **facts: Any
) -> Question:
    one = participant(preemptor) if isinstance(preemptor, str) else preemptor
    other = participant(victim) if isinstance(victim, str) else victim
    return Question(one, other, at(seconds), **facts)
