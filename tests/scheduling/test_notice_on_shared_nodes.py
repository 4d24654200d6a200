"""Random plans whose victims share nodes while they save: the promise, and what they cost together.

Up to four preemptors come to two or three nodes that are full of pods which ask for notice. Each
victim saves at a time of its own, or never; some preemptors go away before. When somebody is
deleted is counted from the deletions of the API server; what he was told, second by second.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import pod
from tests.scheduling.test_notice import ALLOWED, asking, notices, told

SEEDS = range(60)
_SECONDS = 150


class World:
    """One cluster: who saves when, who was told what, who went when."""

    def __init__(self, cluster: Memory, seed: int) -> None:
        self.cluster, self.random = cluster, Random(seed)
        self.cpus = dict[str, int]()
        self.node = dict[str, str]()
        self.saves = dict[str, int]()  # by name, in seconds
        self.saved = dict[str, int]()
        self.told = dict[str, int]()  # the latest deadline
        self.gone = dict[str, int]()
        self.comes = dict[str, tuple[int, int]]()  # of preemptors: second and cpus
        self.leaves = dict[str, int]()

    def fill(self) -> None:
        random, nodes = self.random, self.random.choice((2, 3))
        self.cluster.nodes([4] * nodes)
        for number in range(nodes):
            left = 4
            while left:
                cpu = random.randint(1, min(2, left))
                name, left = f"old-{number}-{left}", left - cpu
                self.cpus[name], self.node[name] = cpu, f"node-{number}"
                self.cluster.running(
                    asking(name, cpu, random.choice(("30s", "1m"))), f"node-{number}"
                )
                if random.random() < 0.7:
                    self.saves[name] = random.randint(3, 50)
        for number in range(random.randint(2, 4)):
            name = f"new-{number}"
            self.comes[name] = random.randint(0, 15), random.randint(1, 3)
            if random.random() < 0.2:
                self.leaves[name] = self.comes[name][0] + random.randint(2, 40)

    async def play(self) -> None:
        cluster = self.cluster
        cluster.start(section=ALLOWED)
        await cluster.pass_time(SECOND)
        for second in range(_SECONDS):
            for name, (at, cpu) in self.comes.items():
                if at == second:
                    cluster.create(pod(name, cpu, priority="high"))
                if self.leaves.get(name) == second and name not in cluster.placed():
                    cluster.end(name)
            self.listen(second)
            await cluster.pass_time(SECOND)
            for name in cluster.api.deleted:
                self.gone.setdefault(name, cluster.clock.wall())
            cluster.end_all()

    def listen(self, second: int) -> None:
        """Let each pod look what it is told, and save at its time."""
        for name in self.cpus.keys() - self.gone.keys():
            found = told(self.cluster, name)
            if found is None or found.notice.final:
                self.told.pop(name, None)
                self.saved.pop(name, None)
                continue
            due = found.notice.due
            if name in self.saves and second >= self.saves[name] and name not in self.saved:
                notices(self.cluster).saved(found, self.cluster.pod(name)["metadata"]["uid"])
                self.saved[name] = self.cluster.clock.wall()
            self.told[name] = due

    def judge(self) -> Counter[str]:
        """Assert the promise, and return what the plans cost together."""
        cluster, seen = self.cluster, Counter[str]()
        assert set(cluster.api.deleted.values()) <= {1}, "somebody was deleted twice"
        for name, at in self.gone.items():
            deadlines = [
                parse_instant(victim["notice"]["deadline"])
                for intent in cluster.intents()
                for victim in intent["spec"]["victims"]
                if victim["root"]["name"] == name and victim.get("notice")
            ]
            assert deadlines, f"{name} was told by no plan"
            # A pod that has saved may go whatever another plan has told it.
            allowed = min([*deadlines, self.saved.get(name, deadlines[0])])
            assert at >= allowed, f"{name} went {(allowed - at) / SECOND:.0f} s early"
            seen["early" if at < min(deadlines) else "at the deadline"] += 1
        wanted = [name for name in self.comes if name not in self.leaves]
        placed = cluster.placed()
        seen["needed"] = sum(self.comes[name][1] for name in self.comes if name in placed)
        seen["freed"] = sum(self.cpus[name] for name in self.gone)
        held = Counter[str]()
        for name in self.comes.keys() & placed.keys():
            held[placed[name]] += self.comes[name][1]
        # Nobody of equal priority makes room: beside the others it fits on no node.
        room = max(4 - held[node] for node in set(self.node.values()))
        seen["waiting"] = sum(name not in placed and self.comes[name][1] <= room for name in wanted)
        seen["plans"] = len(cluster.intents())
        seen["abandoned"] = sum(i["status"]["phase"] == "Abandoned" for i in cluster.intents())
        return seen


async def test_plans_that_share_nodes_keep_the_promise_and_free_little_more_than_they_need() -> (
    None
):
    seen = Counter[str]()
    for seed in SEEDS:
        async with memory() as cluster:
            world = World(cluster, seed)
            world.fill()
            await world.play()
            try:
                seen += world.judge()
            except AssertionError as failure:
                raise AssertionError(f"seed {seed}: {failure}") from failure
    print(f"\n{dict(seen)}")
    assert seen["early"] >= 30 and seen["at the deadline"] >= 10 and seen["abandoned"] >= 5, seen
    assert not seen["waiting"], "whoever stays gets its room"
    assert seen["freed"] <= 1.5 * seen["needed"], seen
