"""Over random groups: what is deleted stays deleted, whoever makes pods again.

Controllers make again what they miss, at once, as a ReplicaSet does. Between events from outside
(scaling, failures, deletions) everything comes to rest, and no more is deleted than was there.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from reprieve.jobs.groups import Excess, excess_of, roster, surplus
from reprieve.jobs.pods import is_gated, role_of
from tests.jobs.builders import GATE, Json, pod

GROUPS = 300
EVENTS = 6
ROUNDS = 40


@dataclass
class Group:
    """One group, its controllers (role and replicas by uid), and the rules applied to it."""

    random: Random
    total: int
    controllers: dict[str, tuple[str, int]]
    pods: list[Json] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def member(self, role: str, controller: str = "") -> Json:
        made = pod(f"p-{next(self.numbers):04}", gated=True, notes={"role-hash": role})
        if controller:
            made["metadata"]["ownerReferences"] = [{"uid": controller, "controller": True}]
        return made

    def make(self) -> None:
        for uid, (role, replicas) in self.controllers.items():
            have = [each for each in self.pods if _controller(each) == uid and not _failed(each)]
            self.pods += [self.member(role, uid) for _ in range(replicas - len(have))]
            for each in have[replicas:]:
                self.pods.remove(each)

    def rest(self) -> tuple[int, int]:
        """Let controllers and rules act until nothing changes: deleted pods, and held ones."""
        deleted = 0
        for _ in range(ROUNDS):
            self.make()
            gone, held, changed = self.step()
            deleted += gone
            if not gone and not changed:
                return deleted, held
        raise AssertionError("it never comes to rest")

    def step(self) -> tuple[int, int, bool]:
        if not self.counts:
            active = [each for each in self.pods if not _failed(each)]
            if len(active) < self.total:
                return 0, 0, False
            spare = surplus(active, self.total)
            kept = [each for each in active if each not in spare]
            self.counts = dict(Counter(role_of(each) for each in kept))
            return self.delete([e for e in spare if excess_of(e, GATE) is Excess.DELETE]), 0, True
        here = roster(self.counts, self.pods, GATE)
        if not here.fits:
            self.counts = {}
            return self.delete([each for each in self.pods if not is_gated(each, GATE)]), 0, True
        what = [(each, excess_of(each, GATE)) for each in here.excess]
        gone = self.delete([each for each, do in what if do is Excess.DELETE])
        gone += self.delete(list(here.replaced))
        started = [each for each in here.kept if is_gated(each, GATE)]
        for each in started:
            del each["spec"]["schedulingGates"]
            each["status"]["phase"] = "Running"
        return gone, sum(do is Excess.HOLD for _, do in what), bool(started)

    def delete(self, pods: list[Json]) -> int:
        for each in pods:
            self.pods.remove(each)
        return len(pods)

    def happens(self) -> None:
        """One thing from outside."""
        uid = self.random.choice([*self.controllers])
        role, _replicas = self.controllers[uid]
        what = self.random.randrange(4)
        if what == 0:
            self.controllers[uid] = (role, self.random.randrange(6))
        elif what == 1:
            self.pods.append(self.member(self.random.choice("ab")))
        elif what == 2 and self.pods:
            self.pods.remove(self.random.choice(self.pods))
        elif self.pods:
            self.random.choice(self.pods)["status"]["phase"] = "Failed"


def _controller(each: Json) -> str:
    return str((each["metadata"].get("ownerReferences") or [{"uid": ""}])[0]["uid"])


def _failed(each: Json) -> bool:
    return bool(each["status"]["phase"] == "Failed")


def test_random_groups_come_to_rest_and_lose_no_more_than_was_there() -> None:
    held = 0
    for seed in range(GROUPS):
        random = Random(seed)
        controllers = {
            f"set-{index}": (random.choice("ab"), random.randrange(1, 6))
            for index in range(random.randrange(1, 3))
        }
        group = Group(random, random.randrange(1, 5), controllers)
        for _ in range(EVENTS):
            group.make()
            there = len(group.pods)
            deleted, kept_back = group.rest()
            assert deleted <= there + group.total, seed
            held += kept_back > 0
            group.happens()
    assert held >= GROUPS, "too few groups had a pod too many that a controller makes again"
