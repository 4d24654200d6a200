"""Quota as a flow: what every node has to spare, hands up, or has to be handed from above.

A second opinion on limits that shares no formula with the specification's `available`: no node has
a usage of its own here, and nothing is kept but what flows over each edge. A node has its own quota
and what its children hand up; it needs what they cannot do without. What it has to spare it hands
up, at most its lending limit; what it lacks comes from above, at most its borrowing limit. All is
well if no limit is exceeded and the root lacks nothing. Imports nothing of the engine; a case is
the dict of `tests.oracle.quota`, of which only `queues` and `cohorts` are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Pair = tuple[str, str]
Node = tuple[str, str]  # ("queue" | "cohort", name)
Usage = Mapping[str, Mapping[Pair, int]]  # by ClusterQueue


@dataclass(frozen=True)
class Spare:
    """What a node has left over, below zero what it lacks; `limit` is the most that it may lack."""

    left: int
    limit: int | None
    lent: int  # what it hands up
    held_back: int  # what it has left over and its lending limit keeps there

    @property
    def fine(self) -> bool:
        return self.limit is None or self.left >= -self.limit


class Flows:
    """The trees of a case."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.specs: dict[Node, dict[str, Any]] = {
            ("queue", name): spec for name, spec in case["queues"].items()
        }
        self.specs |= {("cohort", name): spec for name, spec in case["cohorts"].items()}
        self.above: dict[Node, Node] = {}
        self.below: dict[Node, list[Node]] = {}
        for node, spec in list(self.specs.items()):
            parent = spec["cohort"] if node[0] == "queue" else spec["parent"]
            if parent:
                self.above[node] = ("cohort", parent)
                self.specs.setdefault(("cohort", parent), {"quotas": {}})
                self.below.setdefault(("cohort", parent), []).append(node)

    def path(self, queue: str) -> list[Node]:
        found: list[Node] = [("queue", queue)]
        while found[-1] in self.above:
            found.append(self.above[found[-1]])
        return found

    def spare(self, node: Node, pair: Pair, usage: Usage) -> Spare:
        nominal, borrowing, lending = self.specs[node]["quotas"].get(pair, (0, None, None))
        left = nominal - (usage.get(node[1], {}).get(pair, 0) if node[0] == "queue" else 0)
        for child in self.below.get(node, ()):
            found = self.spare(child, pair, usage)
            left += found.lent if found.left > 0 else found.left
        if node not in self.above:
            return Spare(left, 0, 0, 0)
        lent = max(0, left if lending is None else min(left, lending))
        return Spare(left, borrowing, lent, max(0, left) - lent)

    def state(self, queue: str, pair: Pair, usage: Usage) -> list[Spare]:
        """Return what each node from a ClusterQueue to its root has to spare."""
        return [self.spare(node, pair, usage) for node in self.path(queue)]

    def allows(self, queue: str, requests: Mapping[Pair, int], usage: Usage) -> bool:
        """Tell whether a queue may use that much more.

        Where limits are exceeded already, as after a change of quotas, nothing may get worse.
        """
        more = {name: dict(held) for name, held in usage.items()}
        mine = more.setdefault(queue, {})
        for pair, amount in requests.items():
            mine[pair] = mine.get(pair, 0) + amount
        return all(
            after.fine or after.left == before.left
            for pair, amount in requests.items()
            if amount
            for before, after in zip(
                self.state(queue, pair, usage), self.state(queue, pair, more), strict=True
            )
        )
