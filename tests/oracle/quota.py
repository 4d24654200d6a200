"""A naive second opinion on the quota plane: plain data in, plain data out, no care for speed.

Written from the specification alone; imports nothing of the engine. Usage is not kept up to date:
what a cohort uses or has available is worked out anew from the ClusterQueues for every question.
Only what never changes within a case, its quotas, is remembered. A case is a dict:

    {"fair": None or [strategy, ...], "within_nominal_gate": bool,
     "queues": {name: {"cohort", "quotas", "weight", "within", "reclaim", "borrow", "threshold"}},
     "cohorts": {name: {"parent", "quotas", "weight"}},
     "admitted": [{"key", "uid", "queue", "priority", "reserved", "created", "evicted", "usage"}],
     "incoming": {"queue", "priority", "created", "requests", "need"}}

`extra`, where it is given, is usage by ClusterQueue that is nobody's to preempt.

Quotas are `{(flavor, resource): (nominal, borrowing limit or None, lending limit or None)}`, usage
and requests `{(flavor, resource): amount}`, need a set of pairs. No amount is unlimited.
"""

from __future__ import annotations

import math
from typing import Any

Case = dict[str, Any]
Pair = tuple[str, str]
Usage = dict[str, dict[Pair, int]]  # by ClusterQueue
Node = tuple[str, str]  # ("queue" | "cohort", name)


class World:
    """Questions about a tree, given what its ClusterQueues use."""

    def __init__(self, case: Case) -> None:
        self.case = case
        names = {q["cohort"] for q in case["queues"].values() if q["cohort"]}
        names |= set(case["cohorts"])
        names |= {c["parent"] for c in case["cohorts"].values() if c["parent"]}
        self.cohorts = {
            name: case["cohorts"].get(name, {"parent": "", "quotas": {}, "weight": 1.0})
            for name in sorted(names)
        }
        self.usage: Usage = {name: {} for name in case["queues"]}
        self.of_queue: dict[str, list[Case]] = {name: [] for name in case["queues"]}
        self.fixed: dict[Any, Any] = {}
        for workload in case["admitted"]:
            self.change(workload, 1)
            self.of_queue[workload["queue"]].append(workload)
        for queue, usage in case.get("extra", {}).items():
            self.change({"queue": queue, "usage": usage}, 1)

    def change(self, workload: Case, sign: int) -> None:
        mine = self.usage[workload["queue"]]
        for pair, amount in workload["usage"].items():
            mine[pair] = mine.get(pair, 0) + sign * amount

    def spec(self, node: Node) -> Case:
        found: Case = self.case["queues"][node[1]] if node[0] == "queue" else self.cohorts[node[1]]
        return found

    def parent(self, node: Node) -> Node | None:
        spec = self.spec(node)
        name = spec["cohort"] if node[0] == "queue" else spec["parent"]
        return ("cohort", name) if name else None

    def path(self, node: Node) -> list[Node]:
        found = [node]
        while (above := self.parent(found[-1])) is not None:
            found.append(above)
        return found

    def children(self, cohort: str) -> list[Node]:
        found: list[Node] | None = self.fixed.get(cohort)
        if found is None:
            found = self.fixed[cohort] = self._children(cohort)
        return found

    def _children(self, cohort: str) -> list[Node]:
        queues = [("queue", n) for n, q in self.case["queues"].items() if q["cohort"] == cohort]
        cohorts = [("cohort", n) for n, c in self.cohorts.items() if c["parent"] == cohort]
        return sorted(queues) + sorted(cohorts)

    def pairs(self, node: Node) -> set[Pair]:
        if ("pairs", node) not in self.fixed:
            self.fixed["pairs", node] = self._pairs(node)
        found: set[Pair] = self.fixed["pairs", node]
        return found

    def _pairs(self, node: Node) -> set[Pair]:
        found = set(self.spec(node)["quotas"])
        if node[0] == "cohort":
            for child in self.children(node[1]):
                found |= self.pairs(child)
        return found

    def quota(self, node: Node, pair: Pair) -> tuple[int, int | None, int | None]:
        found: tuple[int, int | None, int | None] = self.spec(node)["quotas"].get(
            pair, (0, None, None)
        )
        return found

    def subtree(self, node: Node, pair: Pair) -> int:
        key = ("subtree", node, pair)
        if key not in self.fixed:
            self.fixed[key] = self._subtree(node, pair)
        found: int = self.fixed[key]
        return found

    def _subtree(self, node: Node, pair: Pair) -> int:
        total = self.quota(node, pair)[0]
        if node[0] == "cohort":
            for child in self.children(node[1]):
                total += self.subtree(child, pair) - self.local(child, pair)
        return total

    def local(self, node: Node, pair: Pair) -> int:
        key = ("local", node, pair)
        if key not in self.fixed:
            self.fixed[key] = self._local(node, pair)
        found: int = self.fixed[key]
        return found

    def _local(self, node: Node, pair: Pair) -> int:
        lending = self.quota(node, pair)[2]
        return 0 if lending is None else max(0, self.subtree(node, pair) - lending)

    def used(self, node: Node, pair: Pair) -> int:
        if node[0] == "queue":
            return self.usage[node[1]].get(pair, 0)
        return sum(
            max(0, self.used(child, pair) - self.local(child, pair))
            for child in self.children(node[1])
        )

    def local_left(self, node: Node, pair: Pair) -> int:
        return max(0, self.local(node, pair) - self.used(node, pair))

    def available(self, node: Node, pair: Pair) -> int:
        above = self.parent(node)
        if above is None:
            return self.subtree(node, pair) - self.used(node, pair)
        left = self.available(above, pair)
        borrowing = self.quota(node, pair)[1]
        if borrowing is not None:
            stored = self.subtree(node, pair) - self.local(node, pair)
            taken = max(0, self.used(node, pair) - self.local(node, pair))
            left = min(left, stored - taken + borrowing)
        return self.local_left(node, pair) + left

    def potential(self, node: Node, pair: Pair) -> int:
        key = ("potential", node, pair)
        if key not in self.fixed:
            self.fixed[key] = self._potential(node, pair)
        found: int = self.fixed[key]
        return found

    def _potential(self, node: Node, pair: Pair) -> int:
        above = self.parent(node)
        if above is None:
            return self.subtree(node, pair)
        most = self.local(node, pair) + self.potential(above, pair)
        borrowing = self.quota(node, pair)[1]
        return most if borrowing is None else min(most, self.subtree(node, pair) + borrowing)

    def within(self, node: Node, need: set[Pair]) -> bool:
        return all(self.used(node, pair) <= self.subtree(node, pair) for pair in need)

    def share(self, node: Node) -> tuple[bool, float, float]:
        """Return whether it borrows, the ratio, and the weighted share."""
        above = self.parent(node)
        if above is None:
            return False, 0.0, 0.0
        borrowed: dict[str, int] = {}
        for pair in self.pairs(node):
            over = self.used(node, pair) - self.subtree(node, pair)
            if over > 0:
                borrowed[pair[1]] = borrowed.get(pair[1], 0) + over
        ratio = 0.0
        for resource, amount in borrowed.items():
            lendable = sum(
                self.potential(above, pair)
                for pair in self.pairs(self.path(node)[-1])
                if pair[1] == resource
            )
            if lendable > 0:
                ratio = max(ratio, amount * 1000.0 / lendable)
        weight = self.spec(node)["weight"]
        if not ratio:
            return bool(borrowed), 0.0, 0.0
        return True, ratio, ratio / weight if weight else math.inf

    def compare(self, a: tuple[bool, float, float], b: tuple[bool, float, float]) -> int:
        left, right = a[2], b[2]
        if math.isinf(left) and math.isinf(right):
            left, right = a[1], b[1]
        return (left > right) - (left < right)


def rank(w: Case, own: str) -> tuple[Any, ...]:
    """What candidates are ordered by, the first to be preempted being the least."""
    return (not w["evicted"], w["queue"] == own, w["priority"], -w["reserved"], w["uid"])


def ordered(candidates: list[Case], own: str) -> list[Case]:
    return sorted(candidates, key=lambda w: rank(w, own))


def allowed(policy: str, who: Case, candidate: Case) -> bool:
    lower: bool = who["priority"] > candidate["priority"]
    if policy == "Any":
        return True
    if policy == "LowerPriority":
        return lower
    if policy == "LowerOrNewerEqualPriority":
        same = who["priority"] == candidate["priority"]
        return lower or bool(same and who["created"] < candidate["created"])
    return False


def targets(case: Case) -> list[tuple[str, str]]:
    """Return the key and the reason of every target, in order."""
    if case["fair"] is not None:
        found, _ = fair(case)
        return found
    return classical(case)


def fits(world: World, who: Case, borrow: bool) -> bool:
    node = ("queue", who["queue"])
    for pair, amount in who["requests"].items():
        if not borrow and world.used(node, pair) + amount > world.quota(node, pair)[0]:
            return False
        if amount > max(0, world.available(node, pair)):
            return False
    return True


def fill_back(world: World, who: Case, borrow: bool, chosen: list[tuple[Case, str]]) -> None:
    for position in range(len(chosen) - 2, -1, -1):
        world.change(chosen[position][0], 1)
        if fits(world, who, borrow):
            chosen[position] = chosen[-1]
            del chosen[-1]
        else:
            world.change(chosen[position][0], -1)


def concerned(world: World, queue: str, policy: str, who: Case) -> list[Case]:
    return [
        w
        for w in world.of_queue[queue]
        if allowed(policy, who, w) and set(w["usage"]) & who["need"]
    ]


def classical(case: Case) -> list[tuple[str, str]]:
    world, who = World(case), case["incoming"]
    own = case["queues"][who["queue"]]
    node: Node = ("queue", who["queue"])
    hierarchy: list[tuple[Case, Node]] = []
    priority: list[tuple[Case, Node]] = []
    if own["reclaim"] not in ("Never", ""):
        advantage, rest, handled = _room(world, node, who["requests"], node)
        for top in world.path(node)[1:]:
            for queue in _over(world, top, handled, who):
                found = concerned(world, queue, own["reclaim"], who)
                (hierarchy if advantage else priority).extend((w, top) for w in found)
            more, rest, handled = _room(world, top, rest, top)
            advantage = advantage or more
    mine = concerned(world, who["queue"], own["within"], who)
    forbidden = own["borrow"] in (None, "Never")
    under = all(world.quota(node, p)[0] > world.used(node, p) for p in who["need"])
    if not (hierarchy or priority) or (forbidden and not under):
        attempts = [True]
    elif forbidden and not hierarchy:
        attempts = [False, True]
    else:
        attempts = [True, False]
    advantaged = {w["key"] for w, _ in hierarchy}
    tops = {w["key"]: top for w, top in hierarchy + priority}

    def variant(w: Case) -> str:
        if w["queue"] == who["queue"]:
            return "InClusterQueue"
        if w["key"] in advantaged or forbidden or w["priority"] >= who["priority"]:
            return "InCohortReclamation"
        if own["threshold"] is not None and w["priority"] > own["threshold"]:
            return "InCohortReclamation"
        return "InCohortReclaimWhileBorrowing"

    lists = [
        ordered([w for w in found if w["evicted"] is evicted], who["queue"])
        for evicted in (True, False)
        for found in ([w for w, _ in hierarchy], [w for w, _ in priority], mine)
    ]
    for borrow in attempts:
        world = World(case)
        chosen: list[tuple[Case, str]] = []
        for position, found in enumerate(lists):
            for w in found:
                reason = variant(w)
                if w["queue"] != who["queue"]:
                    if borrow and position % 3 == 1 and reason == "InCohortReclamation":
                        continue
                    path = world.path(("queue", w["queue"]))
                    below = path[: path.index(tops[w["key"]])]
                    if any(world.within(each, who["need"]) for each in below):
                        continue
                world.change(w, -1)
                chosen.append((w, reason))
                if fits(world, who, borrow):
                    fill_back(world, who, borrow, chosen)
                    return [(each["key"], why) for each, why in chosen]
    return []


def _room(
    world: World, node: Node, requests: dict[Pair, int], handled: Node
) -> tuple[bool, dict[Pair, int], Node]:
    ok = all(world.subtree(node, p) >= world.used(node, p) + v for p, v in requests.items())
    rest = {p: max(0, v - world.local_left(node, p)) for p, v in requests.items()}
    return ok, rest, handled


def _over(world: World, top: Node, handled: Node, who: Case) -> list[str]:
    found = []
    for child in world.children(top[1]):
        if child == handled or world.within(child, who["need"]):
            continue
        if child[0] == "queue":
            found.append(child[1])
        else:
            found += _over(world, child, handled, who)
    return found


def fair(case: Case) -> tuple[list[tuple[str, str]], list[tuple[str, str, bool]]]:
    """Return the targets, and of each fair-sharing choice: key, strategy, whether it held."""
    world, who = World(case), case["incoming"]
    own = case["queues"][who["queue"]]
    node: Node = ("queue", who["queue"])
    root = world.path(node)[-1]
    waiting: dict[str, list[Case]] = {}
    mine = concerned(world, who["queue"], own["within"], who)
    if mine:
        waiting[who["queue"]] = ordered(mine, who["queue"])
    if root != node and own["reclaim"] not in ("Never", ""):
        for name in case["queues"]:
            other: Node = ("queue", name)
            if name == who["queue"] or world.path(other)[-1] != root:
                continue
            if world.within(other, who["need"]):
                continue
            found = concerned(world, name, own["reclaim"], who)
            if found:
                waiting[name] = ordered(found, who["queue"])
    if not waiting:
        return [], []
    simulated = {"queue": who["queue"], "usage": who["requests"]}
    world.change(simulated, 1)
    within = case["within_nominal_gate"] and world.within(node, who["need"])
    strategies = case["fair"] or ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
    chosen: list[tuple[Case, str]] = []
    trace: list[tuple[str, str, bool]] = []
    retry: dict[str, list[Case]] = {}

    def take(w: Case, reason: str) -> bool:
        world.change(w, -1)
        chosen.append((w, reason))
        world.change(simulated, -1)
        good = fits(world, who, True)
        world.change(simulated, 1)
        return good

    def sides(queue: str) -> tuple[Node, Node]:
        ours, theirs = world.path(node), world.path(("queue", queue))
        common = next(each for each in theirs if each in ours)
        return ours[ours.index(common) - 1], theirs[theirs.index(common) - 1]

    def first_round() -> bool:
        pruned: set[Node] = set()
        while (queue := _walk(world, who, root, waiting, pruned)) is not None:
            if queue == who["queue"] or within:
                why = "InClusterQueue" if queue == who["queue"] else "InCohortReclamation"
                if take(waiting[queue].pop(0), why):
                    return True
                continue
            a, b = sides(queue)
            new, old = world.share(a), world.share(b)
            while waiting[queue]:
                w = waiting[queue].pop(0)
                if strategies[0] == "LessThanOrEqualToFinalShare":
                    world.change(w, -1)
                    held = world.compare(new, world.share(b)) <= 0
                    world.change(w, 1)
                else:
                    held = world.compare(new, old) < 0
                if held:
                    trace.append((w["key"], strategies[0], held))
                    if take(w, "InCohortFairSharing"):
                        return True
                    break
                retry.setdefault(queue, []).append(w)
        return False

    def second_round() -> bool:
        pruned: set[Node] = set()
        while (queue := _walk(world, who, root, retry, pruned)) is not None:
            a, b = sides(queue)
            held = world.compare(world.share(a), world.share(b)) < 0
            w = retry[queue].pop(0)
            if held:
                trace.append((w["key"], strategies[1], held))
                if take(w, "InCohortFairSharing"):
                    return True
            pruned.add(("queue", queue))
        return False

    good = first_round() or (len(strategies) > 1 and second_round())
    world.change(simulated, -1)
    if not good:
        return [], trace
    fill_back(world, who, True, chosen)
    return [(w["key"], why) for w, why in chosen], trace


def _walk(
    world: World, who: Case, root: Node, waiting: dict[str, list[Case]], pruned: set[Node]
) -> str | None:
    own: Node = ("queue", who["queue"])
    if root == own:
        return who["queue"] if waiting.get(who["queue"]) and own not in pruned else None
    while root not in pruned:
        found = _down(world, who, root, waiting, pruned)
        if found is not None:
            return found
    return None


def _down(
    world: World, who: Case, cohort: Node, waiting: dict[str, list[Case]], pruned: set[Node]
) -> str | None:
    own: Node = ("queue", who["queue"])
    best: dict[str, Node | None] = {"queue": None, "cohort": None}
    for child in world.children(cohort[1]):
        if child in pruned:
            continue
        share = world.share(child)
        exempt = child in world.path(own)
        empty = child[0] == "queue" and not waiting.get(child[1])
        if empty or not (share[0] or exempt):
            pruned.add(child)
            continue
        so_far = best[child[0]]
        if so_far is None:
            best[child[0]] = child
            continue
        order = world.compare(share, world.share(so_far))
        tie = child[0] == "queue" and order == 0
        if order > 0 or (
            tie
            and rank(waiting[child[1]][0], who["queue"]) < rank(waiting[so_far[1]][0], who["queue"])
        ):
            best[child[0]] = child
    queue, below = best["queue"], best["cohort"]
    if queue is None and below is None:
        pruned.add(cohort)
        return None
    if below is not None and (
        queue is None or world.compare(world.share(below), world.share(queue)) >= 0
    ):
        return _down(world, who, below, waiting, pruned)
    assert queue is not None
    return queue[1]
