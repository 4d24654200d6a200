"""The cheapest victims of a preemption by quota, by trying every order in which they may be taken.

Cases are those of `tests.oracle.quota`. A set may go if it is reached from nobody by taking one
after the other, each rightly in the state in which those before it are gone, and none of it could
stay. Nothing here comes from the engine. With fair sharing only the queues in `payers` pay, by the
first strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from tests.oracle.quota import Case, Node, World, _over, _room, concerned, fits

OFFSET = 2**31
NOBODY = -(2**63)

Cost = tuple[int, int, int]
May = Callable[[World, Case], bool]


def cost(chosen: Collection[Case]) -> Cost:
    """Return the top priority, the sum of priorities with an offset, and how many leave already."""
    staying = [w for w in chosen if not w["evicted"]]
    top = max((w["priority"] for w in staying), default=NOBODY)
    return top, sum(w["priority"] + OFFSET for w in staying), len(chosen) - len(staying)


def least(case: Case, payers: Collection[str]) -> Cost | None:
    """Return what the cheapest set costs that may go; None without any, or where nobody has to."""
    costs = [
        cost(chosen)
        for borrow, candidates, may in _attempts(case, payers)
        for chosen in _reached(case, candidates, may)
        if chosen
        and _fits_without(case, chosen, borrow)
        and not any(
            _fits_without(case, [each for each in chosen if each is not w], borrow) for w in chosen
        )
    ]
    return min(costs, default=None)


def fits_already(case: Case) -> bool:
    """Whether the preemptor fits with nobody gone."""
    return any(fits(World(case), case["incoming"], borrow) for borrow in (True, False))


def _fits_without(case: Case, chosen: Collection[Case], borrow: bool) -> bool:
    world = World(case)
    for w in chosen:
        world.change(w, -1)
    return fits(world, case["incoming"], borrow)


def _reached(case: Case, candidates: list[Case], may: May) -> Iterator[list[Case]]:
    """Yield every set that may go: each once, smaller ones first."""
    at = {w["key"]: w for w in candidates}
    known: set[frozenset[str]] = {frozenset()}
    level = [frozenset[str]()]
    while level:
        following = []
        for keys in level:
            chosen = [at[key] for key in sorted(keys)]
            yield chosen
            world = World(case)
            for w in chosen:
                world.change(w, -1)
            for w in candidates:
                more = keys | {w["key"]}
                if w["key"] not in keys and more not in known and may(world, w):
                    known.add(more)
                    following.append(more)
        level = following


def _attempts(case: Case, payers: Collection[str]) -> Iterator[tuple[bool, list[Case], May]]:
    if case["fair"] is not None:
        yield True, *_fair(case, payers)
    else:
        yield from _classical(case)


def _classical(case: Case) -> Iterator[tuple[bool, list[Case], May]]:
    world, who = World(case), case["incoming"]
    own = case["queues"][who["queue"]]
    node: Node = ("queue", who["queue"])
    hierarchy: list[tuple[Case, Node]] = []
    priority: list[tuple[Case, Node]] = []
    if own["reclaim"] not in ("Never", ""):
        advantage, rest, handled = _room(world, node, who["requests"], node)
        for top in world.path(node)[1:]:
            for queue in _over(world, top, handled, who):
                there = concerned(world, queue, own["reclaim"], who)
                (hierarchy if advantage else priority).extend((w, top) for w in there)
            more, rest, handled = _room(world, top, rest, top)
            advantage = advantage or more
    mine = concerned(world, who["queue"], own["within"], who)
    forbidden = own["borrow"] in (None, "Never")
    under = all(world.quota(node, p)[0] > world.used(node, p) for p in who["need"])
    tops = {w["key"]: top for w, top in hierarchy + priority}

    def may(world: World, w: Case) -> bool:
        if w["queue"] == who["queue"]:
            return True
        path = world.path(("queue", w["queue"]))
        below = path[: path.index(tops[w["key"]])]
        return not any(world.within(each, who["need"]) for each in below)

    def while_borrowing(w: Case) -> bool:
        if forbidden or w["priority"] >= who["priority"]:
            return False
        return own["threshold"] is None or bool(w["priority"] <= own["threshold"])

    everybody = [w for w, _ in hierarchy + priority] + mine
    some = [w for w, _ in hierarchy] + [w for w, _ in priority if while_borrowing(w)] + mine
    yield True, some, may
    if (hierarchy or priority) and not (forbidden and not under):
        yield False, everybody, may


def _fair(case: Case, payers: Collection[str]) -> tuple[list[Case], May]:
    start, who = World(case), case["incoming"]
    own = case["queues"][who["queue"]]
    node: Node = ("queue", who["queue"])
    simulated: Case = {"queue": who["queue"], "usage": who["requests"]}
    candidates = concerned(start, who["queue"], own["within"], who)
    for name in case["queues"]:
        other: Node = ("queue", name)
        if name == who["queue"] or start.path(other)[-1] != start.path(node)[-1]:
            continue
        if own["reclaim"] not in ("Never", "") and not start.within(other, who["need"]):
            candidates += concerned(start, name, own["reclaim"], who)
    start.change(simulated, 1)
    nominal = case["within_nominal_gate"] and start.within(node, who["need"])
    final = (case["fair"] or ["LessThanOrEqualToFinalShare"])[0] == "LessThanOrEqualToFinalShare"

    def may(world: World, w: Case) -> bool:
        if w["queue"] == who["queue"]:
            return True
        world.change(simulated, 1)
        try:
            return _compared(world, w)
        finally:
            world.change(simulated, -1)

    def _compared(world: World, w: Case) -> bool:
        mine, theirs = world.path(node), world.path(("queue", w["queue"]))
        common = next(each for each in theirs if each in mine)
        below = theirs[: theirs.index(common)]
        if not all(world.share(each)[0] for each in below):
            return False
        if nominal:
            return True
        new = world.share(mine[mine.index(common) - 1])
        if final:
            world.change(w, -1)
        other: Any = world.share(below[-1])
        if final:
            world.change(w, 1)
        order = world.compare(new, other)
        return order <= 0 if final else order < 0

    return [w for w in candidates if w["queue"] in payers], may
