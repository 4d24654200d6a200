"""What becomes of the victims of a plan that is adopted, by what each of them shows.

1. A unit whose eviction has begun is finished, whatever became of the preemptor: a victim of it is
   out of the way, and all others were marked. No victim of a unit is evicted before all of it are
   marked.
2. A unit that was marked at most is finished while the preemptor needs the capacity, and loses its
   marks otherwise: a notified owner may have acted on the notice.
3. One without a mark is left over: the plane states whether it is marked now, or spared.

A victim of no unit is a unit by itself. Pure. Source: the design's "Intent log and executor".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from reprieve.api.reprieve import Victim, VictimState
from reprieve.execution.victims import Reading, Standing, VictimResult

__all__ = ["LET_GO", "SortedOut", "sorted_out"]

M = TypeVar("M")
LET_GO: Final = "its preemptor has released it"
_NOT_MARKED: Final = "its preemption was interrupted before it was marked"


@dataclass(frozen=True, slots=True)
class SortedOut(Generic[M]):
    """All victims of a plan, each once: out of the way, to be evicted, unmarked, and the rest.

    `rest`: each with why it would be spared.
    """

    over: list[tuple[Victim, VictimResult]] = field(default_factory=list)
    going: list[tuple[Victim, M | None]] = field(default_factory=list)
    let_go: list[tuple[Victim, M | None]] = field(default_factory=list)
    rest: list[tuple[Victim, str]] = field(default_factory=list)


def sorted_out(pairs: Sequence[tuple[Victim, Reading[M]]], *, needed: bool) -> SortedOut[M]:
    """Return what becomes of each; `needed`: the preemptor still needs the capacity."""
    units: dict[str, list[Standing]] = {}
    for victim, reading in pairs:
        units.setdefault(_unit(victim), []).append(reading.standing)
    finished = {unit for unit, shown in units.items() if _to_finish(shown, needed=needed)}
    found: SortedOut[M] = SortedOut()
    for victim, reading in pairs:
        match reading.standing:
            case Standing.EVICTED:
                found.over.append((victim, VictimResult(VictimState.EVICTED, reading.message)))
            case Standing.GONE:
                found.over.append((victim, VictimResult(VictimState.GONE, reading.message)))
            case _ if _unit(victim) in finished:
                found.going.append((victim, reading.mark))
            case Standing.MARKED:
                found.let_go.append((victim, reading.mark))
            case _:
                found.rest.append((victim, reading.message or _NOT_MARKED))
    return found


def _unit(victim: Victim) -> str:
    """Return what separates the victim's unit from all others of the plan."""
    return f"unit {victim.unit}" if victim.unit else victim.root.uid


def _to_finish(shown: Iterable[Standing], *, needed: bool) -> bool:
    standings = list(shown)
    left = [each for each in standings if each not in (Standing.EVICTED, Standing.GONE)]
    # A mark may have been removed since.
    begun = len(left) < len(standings) and Standing.UNTOUCHED not in left
    return begun or (needed and Standing.MARKED in left)
