"""Promise 4 over churn: a victim is evicted in one record, whatever comes between its plans.

Work of three priorities comes while victims of earlier plans are still leaving, answers take their
time or are lost, pods are deleted by people, and the process dies. What the API server counted is
compared with what the records say.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.kube.errors import Unreachable
from tests.kube.fakes import FakeAnswer
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import Object, group, pod

_NODES, _CPUS = 5, 4
_STEPS = 60
# In which order a plane meets names of one moment is up to the interpreter's hashes, so that no
# seed promises what it holds: runs go on until what is counted has come, at most this many.
_MOST_RUNS = 16


@dataclass
class Counted:
    """What was generated and seen in all runs."""

    deaths: int = 0
    lost: int = 0
    by_people: int = 0
    named_twice: int = 0
    gone: int = 0
    evicted: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


class Churn:
    """One run. `uids`: of the pods that the operator deleted, counted by the API server."""

    def __init__(self, cluster: Memory, seed: int, *, faults: bool, counted: Counted) -> None:
        self._cluster = cluster
        self._random = Random(seed)
        self._faults = faults
        self._counted = counted
        self._uid: dict[str, str] = {}
        self.by_people: set[str] = set()
        self._number = 0

    def start(self) -> None:
        lag = Random(self._random.random())
        self._cluster.start(lag=lambda: lag.choice((0, 0, 20, 150)) * MILLISECOND)

    def after(self, verb: str, where: Target) -> FakeAnswer | None:
        """Die, or lose the answer, now and then, once a write is stored."""
        if where.kind.startswith("events") or not self._faults:
            return None
        chance = self._random.random()
        if chance < 0.012 and not self._cluster.dead:
            self._counted.deaths += 1
            self._cluster.kill()
        if chance > 0.96 and verb in ("delete", "patch", "post"):
            self._counted.lost += 1
            raise Unreachable("the test loses the answer")
        return None

    async def step(self) -> None:
        cluster, random = self._cluster, self._random
        if cluster.dead:
            cluster.dead = False
            self.start()
        self._arrive()
        for name in cluster.victims():
            if random.random() < 0.1:
                cluster.end(name)
        for name in list(cluster.placed()):
            self._uid[name] = cluster.pod(name)["metadata"]["uid"]
            if random.random() < 0.01:
                self._delete_by_hand(name)
        await cluster.pass_time(random.choice((1, 3, 10)) * SECOND // 10)

    def _arrive(self) -> None:
        random = self._random
        priority = random.choice(("low", "low", "middle", "high"))
        self._number += 1
        name = f"{priority}-{self._number}"
        if random.random() < 0.3:
            size = random.choice((2, 3))
            mode = random.choice(("single", "all"))
            members = [pod(f"{name}-{i}", 2, group=name, priority=priority) for i in range(size)]
            gang = group(name, min_count=size, mode=mode, priority=priority)
            self._create(gang, *members)
            self._counted.kinds[f"gang {mode}"] += 1
        else:
            self._create(pod(name, random.choice((1, 2, 4)), priority=priority))
            self._counted.kinds["pod"] += 1

    def _create(self, *objects: Object) -> None:
        self._cluster.create(*objects)
        for name in (each["metadata"]["name"] for each in objects if each["kind"] == "Pod"):
            self._uid[name] = self._cluster.pod(name)["metadata"]["uid"]

    def _delete_by_hand(self, name: str) -> None:
        if not self._cluster.pod(name)["metadata"].get("deletionTimestamp"):
            self._counted.by_people += 1
            self.by_people.add(self._uid[name])
            body = self._cluster.pod(name)
            body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._cluster.api.put("pods", body)

    def deleted(self) -> Counter[str]:
        """Return how often the operator deleted each pod, by uid; names are never used again."""
        return Counter(
            {self._uid[name]: times for name, times in self._cluster.api.deleted.items()}
        )

    async def finish(self) -> None:
        """Let who has a node leave, and everybody else give up, without more faults."""
        self._faults = False
        if self._cluster.dead:
            self.start()
        for _ in range(8):
            self._cluster.end_all()
            await self._cluster.pass_time(SECOND)
        self._cluster.end(*self._cluster.pods)
        await self._cluster.pass_time(15 * SECOND)


async def _churned(seed: int | None, counted: Counted, *, faults: bool) -> None:
    assert seed is not None, f"too little came in {_MOST_RUNS} runs: {counted}"
    async with memory() as cluster:
        cluster.nodes([_CPUS] * _NODES)
        churn = Churn(cluster, seed, faults=faults, counted=counted)
        cluster.api.after = churn.after
        churn.start()
        for _ in range(_STEPS):
            await churn.step()
        await churn.finish()
        deleted = churn.deleted()
        assert set(deleted.values()) <= {1}, "a pod was deleted twice"
        named: Counter[str] = Counter()
        states: dict[str, Counter[str]] = {}
        for intent in cluster.intents():
            assert intent["status"]["phase"] in ("Completed", "Abandoned"), intent["metadata"]
            named.update(victim["root"]["uid"] for victim in intent["spec"]["victims"])
            for victim in intent["status"]["victims"]:
                states.setdefault(victim["uid"], Counter())[victim["state"]] += 1
        assert deleted.keys() <= named.keys(), "a pod was deleted without a record"
        evicted = {uid: states[uid]["Evicted"] for uid in states if states[uid]["Evicted"]}
        assert set(evicted.values()) <= {1}, f"evicted in two records: {evicted}"
        if not faults:
            assert evicted.keys() == deleted.keys(), "records and API server differ"
        counted.evicted += len(evicted)
        counted.named_twice += sum(times > 1 for times in named.values())
        counted.gone += sum(each["Gone"] for each in states.values())


async def test_a_victim_is_evicted_in_one_record_however_many_plans_name_it() -> None:
    counted = Counted()
    seeds = iter(range(_MOST_RUNS))
    while counted.evicted < 25 or counted.named_twice < 5 or counted.by_people < 5:
        await _churned(next(seeds, None), counted, faults=False)
    assert counted.gone >= counted.named_twice, counted
    assert len(counted.kinds) == 3, counted


async def test_deaths_and_lost_answers_let_no_victim_be_evicted_in_two_records() -> None:
    counted = Counted()
    seeds = iter(range(_MOST_RUNS))
    while min(counted.deaths, counted.named_twice) < 5 or counted.lost < 10 or counted.evicted < 25:
        await _churned(next(seeds, None), counted, faults=True)
