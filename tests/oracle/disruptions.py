"""A naive second opinion on loops of displacements and on what is held in them.

Written from the specification of disruptions alone; imports nothing of the engine. A row is

    (at, preemptor, victim, above, lost, cause)

with instants and durations in one unit, names of lineages, by how much the preemptor's
priority was higher, the device seconds lost and what let the two displace each other ("" unknown).
"""

from __future__ import annotations

from itertools import pairwise

Row = tuple[int, str, str, int, int, str]
Pair = tuple[str, str]
DAY = 24 * 3_600


def turned(rows: list[Row], limit: int, window: int) -> list[tuple[int, list[tuple[str, ...]]]]:
    """Return the cycles that turned more than `limit` times in a window, by the window's end.

    Rows are in the order of time.
    """
    found = []
    for end in sorted({row[0] for row in rows}):
        seen = [row[1:3] for row in rows if end - window < row[0] <= end and row[1] != row[2]]
        # Who turns so often has each of its displacements as often.
        often = {pair for pair in seen if seen.count(pair) > limit}
        cycles = [cycle for cycle in simple_cycles(often) if turns(cycle, seen) > limit]
        if cycles:
            found.append((end, cycles))
    return found


def turns(cycle: tuple[str, ...], pairs: list[Pair]) -> int:
    """Count how often a cycle turned: a turn is over when each of its displacements, in whatever
    order, has happened since the turn before was over.
    """
    around = set(pairwise((*cycle, cycle[0])))
    count, left = 0, set(around)
    for pair in pairs:
        left.discard(pair)
        if not left:
            count, left = count + 1, set(around)
    return count


def simple_cycles(pairs: set[Pair]) -> list[tuple[str, ...]]:
    """Return the cycles that pass nobody twice, each from its first name on."""
    found: list[tuple[str, ...]] = []
    paths: list[tuple[str, ...]] = [(name,) for name in sorted({pair[0] for pair in pairs})]
    while paths:
        path = paths.pop(0)
        if (path[-1], path[0]) in pairs:
            found.append(path)
        further = sorted(other for one, other in pairs if one == path[-1])
        paths += [(*path, name) for name in further if name > path[0] and name not in path]
    return found


def on_cycles(pairs: list[Pair]) -> list[Pair]:
    """Return the pairs that lie on a cycle."""
    reach = set(pairs)
    while True:
        more = {(a, d) for a, b in reach for c, d in reach if b == c} - reach
        if not more:
            return sorted(pair for pair in pairs if pair[::-1] in reach)
        reach |= more


def holds(rows: list[Row], limit: int, window: int) -> dict[Pair, int]:
    """Return who is held from whom until when, in the end; rows in the order of time."""
    ends: dict[Pair, int] = {}
    former: dict[frozenset[str], tuple[int, int]] = {}
    for number, row in enumerate(rows):
        now = row[0]
        seen = [each for each in rows[: number + 1] if now - each[0] < window]
        edges = _edges(seen)
        often = {pair: each for pair, each in edges.items() if len(each[0]) >= limit}
        around = on_cycles(list(often))
        if (row[1], row[2]) not in around:
            continue
        members = _members(around, row[1])
        inside = [pair for pair in around if set(pair) <= members]
        fresh = [
            pair
            for pair in _chosen({pair: often[pair] for pair in inside})
            if ends.get(pair, 0) <= now
        ]
        if not fresh:
            continue
        ended, times = former.get(frozenset(members), (0, -1))
        if ended <= now:
            times = times + 1 if times >= 0 and now <= ended + window else 0
        lasts = min(window * 2**times, max(window, DAY))
        for pair in fresh:
            ends[pair] = (now if times else sorted(often[pair][0])[-limit]) + lasts
        last = max(ends[pair] for pair in fresh)
        former[frozenset(members)] = (max(last, ended), times)
    return ends


def without_gain(rows: list[Row], pair: Pair, limit: int, window: int, now: int) -> int:
    """Return until when one is held from another of its priority, each of whose gains it got."""
    lost = max((row[0] for row in rows if row[2] == pair[0]), default=0)
    seen = [row for row in rows if now - row[0] < window]
    instants = sorted(at for at in _edges(seen).get(pair, ({}, 0, 0))[0] if at < lost)
    return instants[-limit] + window if len(instants) >= limit else 0


def _edges(rows: list[Row]) -> dict[Pair, tuple[set[int], int, int]]:
    """Return instants, the last difference of priorities, and what was lost, by pair."""
    found: dict[Pair, tuple[set[int], int, int]] = {}
    for one, other in {tuple(sorted(row[1:3])) for row in rows if row[1] != row[2]}:
        dealings = [row for row in rows if {row[1], row[2]} == {one, other}]
        causes = [row[5] for row in dealings if row[5]]
        # From behind: as long as nothing else than the last known cause let them.
        while causes and any(row[5] not in ("", causes[-1]) for row in dealings):
            dealings = dealings[1:]
        for pair in ((one, other), (other, one)):
            own = [row for row in dealings if row[1:3] == pair]
            if own:
                found[pair] = ({row[0] for row in own}, own[-1][3], sum(row[4] for row in own))
    return found


def _members(around: list[Pair], start: str) -> set[str]:
    """Return who is on cycles with somebody."""
    reach = set(around)
    while True:
        more = {(a, d) for a, b in reach for c, d in reach if b == c} - reach
        if not more:
            return {a for a, b in reach if (start, a) in reach and (a, start) in reach}
        reach |= more


def _chosen(edges: dict[Pair, tuple[set[int], int, int]]) -> list[Pair]:
    left, found = dict(edges), list[Pair]()
    while True:
        choices = sorted(
            (len(left[pair][0]), left[pair][1], -left[pair][2], pair)
            for pair in on_cycles(list(left))
            if left[pair][1] <= 0
        )
        if not choices:
            return found
        found.append(choices[0][3])
        del left[choices[0][3]]


def is_turn(members: tuple[str, ...], rows: list[Row]) -> bool:
    """Tell whether each member displaced the next, and the last one the first."""
    did = {row[1:3] for row in rows}
    return all(pair in did for pair in pairwise((*members, members[0])))
