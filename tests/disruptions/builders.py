"""Displacements in few words: seconds after a start, and names of lineages."""

from __future__ import annotations

from typing import Any, Final

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.ledger import Actor, Displacement
from reprieve.engine.disruptions.lineage import Identity, Lineage, Party
from reprieve.engine.disruptions.questions import Question

NOW: Final = 1_000_000


def at(seconds: float) -> Nanos:
    return Nanos(NOW * SECOND + int(seconds * SECOND))


def party(name: str, **links: Any) -> Party:
    return Party(Lineage(name), **links)


def identity(uid: str = "u", namespace: str = "ns", **facts: Any) -> Identity:
    return Identity(uid, namespace, tenant=namespace, **facts)


def displaced(
    seconds: float, preemptor: str | Party, victim: str | Party, **facts: Any
) -> Displacement:
    one = party(preemptor) if isinstance(preemptor, str) else preemptor
    other = party(victim) if isinstance(victim, str) else victim
    facts.setdefault("actor", Actor.QUOTA)
    return Displacement(at(seconds), preemptor=one, victim=other, **facts)


def question(seconds: float, preemptor: str | Party, victim: str | Party, **facts: Any) -> Question:
    one = party(preemptor) if isinstance(preemptor, str) else preemptor
    other = party(victim) if isinstance(victim, str) else victim
    return Question(one, other, at(seconds), **facts)
