"""What became of each victim of a plan, in as few letters as thousands of them allow.

The status of a plan in parts states it by numbers: for each state which victims, in the order of
the plan, as ranges ("0-3998,4000"). Only some of those who were not evicted are listed with a
message. Pure. Source: the design's "Intent log and executor".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from reprieve.api.reprieve import Preemption, Victim, VictimState, VictimStatus

__all__ = ["numbers_by_state", "victim_states"]


def numbers_by_state(victims: Sequence[Victim], states: Iterable[VictimStatus]) -> dict[str, str]:
    """Return the numbers of those of the plan's victims who have a state, as ranges, by state."""
    known = {each.uid: each.state for each in states}
    numbers: dict[str, list[int]] = {}
    for number, victim in enumerate(victims):
        state = known.get(victim.root.uid)
        if state is not None:
            numbers.setdefault(state.value, []).append(number)
    return {state: ",".join(_ranges(found)) for state, found in sorted(numbers.items())}


def victim_states(preemption: Preemption) -> dict[str, VictimStatus]:
    """Return what became of each victim, as far as it is known, by the uid of its root.

    Where the status states it by number alone it states no instant: it is that of the record's end.
    """
    victims, status = preemption.spec.victims, preemption.status
    found = {
        victims[number].root.uid: VictimStatus(
            victims[number].root.uid, VictimState(state), status.finished_at
        )
        for state, ranges in status.numbers_by_state.items()
        for number in _numbers(ranges)
        if number < len(victims)  # parts may be absent
    }
    return found | {each.uid: each for each in status.victims}


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    """Yield the ranges of ascending numbers."""
    first = numbers[0]
    for last, following in pairwise((*numbers, None)):
        assert last is not None, "only what follows the last number is none"
        if following != last + 1:
            yield str(first) if first == last else f"{first}-{last}"
            first = following if following is not None else first


def _numbers(ranges: str) -> Iterator[int]:
    for each in filter(None, ranges.split(",")):
        first, _, last = each.partition("-")
        yield from range(int(first), int(last or first) + 1)
