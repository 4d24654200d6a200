"""With `proveNodes`, quota is preempted only for what nodes would then take as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from kubeworld.units.instants import Nanos
from reprieve.engine.cluster.rows import AffinityTerm, NodeRow, PodRow
from reprieve.engine.plan import ProofLevel
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import CycleResult, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    PodSet,
    Policy,
    Preemption,
    ResourceFlavor,
    Workload,
)
from reprieve.engine.quota.plans import plan_of
from reprieve.engine.quota.proofs.node_proof import NodeProof
from reprieve.engine.quota.proofs.pods_wanted import Template
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.units.ids import Uid
from tests.engine.builders import GPU, node, pod, pod_class, snapshot_of
from tests.quota.cases import NOW, SECOND
from tests.quota.test_loops import configuration, queue

LOWER = Preemption(Policy.LOWER_PRIORITY)
LONG_AGO = Nanos(NOW - 3_600 * SECOND)


def workload(name: str, count: int, gpus: int, **changes: Any) -> Workload:
    pod_sets = (PodSet("main", count, {GPU: gpus}),)
    return replace(Workload("ns", name, name, "ns/a", pod_sets=pod_sets), **changes)


def holding(name: str, count: int, gpus: int, **changes: Any) -> Workload:
    pod_set = AdmittedPodSet("main", count, {GPU: "gpus"}, {GPU: count * gpus})
    given = {"admission": Admission("a", (pod_set,)), "reserved_at": LONG_AGO, **changes}
    return workload(name, count, gpus, **given)


def running(of: str, on: str, gpus: int, **facts: Any) -> PodRow:
    name = f"{of}-{on}-{facts.pop('number', 0)}"
    return pod(name, node=on, gpus=gpus, workload=f"ns/{of}", **facts)


class Site:
    """Nodes, what runs on them, and one cycle with or without the proof."""

    def __init__(
        self, nodes: Iterable[NodeRow], pods: Iterable[PodRow], quota: int, **changes: Any
    ) -> None:
        self.configuration = configuration(queue("a", quota, LOWER), **changes)
        self.pods = list(pods)
        self.nodes = snapshot_of(*nodes, *self.pods)
        self.templates: dict[str, Template] = {}
        self.moves = False
        self.idle: Collection[Uid] = ()
        self.opted = True

    def decide(self, *workloads: Workload, proof: bool = True) -> CycleResult:
        holdings, queues = Holdings(self.configuration), Queues(self.configuration)
        for each in workloads:
            if each.admission is not None:
                holdings.hold(each)
            else:
                queues.push(each)
        return cycle(holdings, queues, NOW, proof=self.proof() if proof else None)

    def proof(self) -> NodeProof:
        uids: dict[str, set[Uid]] = {}
        for each in self.pods:
            uids.setdefault(each.workload, set()).add(each.uid)
        return NodeProof(
            self.nodes,
            uids,
            self.template,
            NOW,
            scheduler_preempts=self.moves,
            moves=self.moves,
            reclaimable=self.idle,
            opted=lambda workload: self.opted,
        )

    def template(self, found: Workload) -> Mapping[str, Template]:
        (pod_set,) = found.pod_sets
        known = self.templates.get(found.name)
        return {"main": known or Template(pod_class(gpus=pod_set.requests[GPU]))}


def victims(result: CycleResult) -> list[str]:
    return sorted(t.holder.workload.name for entry in result.entries for t in entry.issued)


def test_four_gpus_on_four_nodes_are_no_room_for_a_pod_of_four() -> None:
    names = [f"n{k}" for k in range(4)]
    low = [holding(f"low-{name}", 1, 1) for name in names]
    high = workload("high", 1, 4, priority=1)
    nodes = [node(name, gpus=4) for name in names]
    others = [pod(f"other-{name}", node=name, gpus=3) for name in names]
    spread = Site(nodes, [*others, *(running(f"low-{n}", n, 1) for n in names)], quota=4)
    assert victims(spread.decide(*low, high, proof=False)) == [w.name for w in low]
    result = spread.decide(*low, high)
    (entry,) = result.entries
    assert (entry.outcome, entry.reason, entry.issued) == (
        Outcome.UNPROVEN,
        "WaitingForQuota",
        (),
    )
    assert entry.message.endswith(". Not preempted: 1 of 1 pod(s) would still fit on no node")
    together = Site(nodes, [running(f"low-{n}", "n2", 1) for n in names], quota=4)
    for proof, level in ((True, ProofLevel.PLACEMENT), (False, ProofLevel.QUOTA)):
        result = together.decide(*low, high, proof=proof)
        assert victims(result) == [w.name for w in low]
        plan = plan_of(result.entries[0], Holdings(together.configuration).tree, 1, "")
        assert plan is not None and plan.proof.level is level


def test_only_nodes_of_the_assigned_flavor_count() -> None:
    low, high = holding("low", 1, 4), workload("high", 2, 2, priority=1)
    free, taken = node("n1", gpus=8), node("n2", gpus=4, labels={"pool": "gpus"})
    site = Site((free, taken), [running("low", "n2", 4)], quota=4)
    assert victims(site.decide(low, high)) == ["low"]
    flavors = {"gpus": ResourceFlavor("gpus", {"pool": "gpus"})}
    site.configuration = replace(site.configuration, flavors=flavors)
    assert victims(site.decide(low, high)) == ["low"]
    flavors = {"gpus": ResourceFlavor("gpus", {"pool": "others"})}
    site.configuration = replace(site.configuration, flavors=flavors)
    (entry,) = site.decide(low, high).entries
    assert entry.message.endswith("2 of 2 pod(s) would still fit on no node")


def test_pods_that_keep_apart_need_nodes_of_their_own() -> None:
    low, high = holding("low", 1, 2), workload("high", 2, 1, priority=1)
    term = AffinityTerm("kubernetes.io/hostname", (), ("ns",))
    apart = Template(pod_class(gpus=1, anti_affinity=(term,)), (("app", "high"),))
    for nodes, expected in (
        ((node("n1", gpus=2),), []),
        ((node("n1", gpus=2), node("n2", gpus=1)), ["low"]),
    ):
        site = Site(nodes, [running("low", "n1", 2)], quota=2)
        assert victims(site.decide(low, high)) == ["low"]
        site.templates["high"] = apart
        assert victims(site.decide(low, high)) == expected


def test_room_that_was_promised_to_others_is_not_promised_again() -> None:
    nodes = [node("n1", gpus=4), node("n2", gpus=4)]
    low, busy = holding("low", 1, 4), holding("busy", 1, 4, priority=1)
    high = workload("high", 1, 4, priority=1)
    pods = [running("low", "n1", 4)]
    waits = pod("busy-0", gpus=4, workload="ns/busy")
    # Its pod has no node yet, and takes what comes free; without any pods, only if it is young.
    assert victims(Site(nodes, pods, quota=8).decide(low, busy, high)) == ["low"]
    small = [node("n1", gpus=4), node("n2", gpus=2)]
    assert victims(Site(small, [*pods, waits], quota=8).decide(low, busy, high)) == []
    young = replace(busy, reserved_at=Nanos(NOW - SECOND))
    assert victims(Site(small, pods, quota=8).decide(low, young, high)) == []
    assert victims(Site(small, pods, quota=8).decide(low, busy, high)) == ["low"]


def test_what_was_promised_to_a_victim_is_room_for_its_preemptor() -> None:
    """The victim has quota, and its pod waits for the only node, which is empty."""
    low = holding("low", 1, 4)
    high = workload("high", 1, 4, priority=1)
    waiting = pod("low-0", gpus=4, workload="ns/low")
    one = Site([node("n0", gpus=4)], [waiting], quota=4)
    result = one.decide(low, high)
    assert victims(result) == ["low"]
    # What is kept for others stays kept, also after somebody was refused.
    small = [node("n0", gpus=4), node("n1", gpus=2)]
    busy, other = holding("busy", 1, 4, priority=2), pod("busy-0", gpus=4, workload="ns/busy")
    refused = Site(small, [other, waiting], quota=8).decide(low, busy, high)
    assert (victims(refused), refused.entries[0].outcome) == ([], Outcome.UNPROVEN)


def test_what_is_preempted_for_follows_from_counting_what_nodes_can_hold() -> None:
    """Pods of one shape: as many go on a node as its free GPUs divided by theirs."""
    random, seen = Random(41), Counter[str]()
    for number in range(700):
        sizes = {f"n{k}": random.choice((2, 4, 8)) for k in range(random.randint(1, 5))}
        free, low = dict(sizes), list[Workload]()
        pods: list[PodRow] = []
        for k in range(random.randint(1, 6)):
            size, count = random.choice((1, 1, 2, 4)), random.randint(1, 3)
            placed: list[PodRow] = []
            for index in range(count):
                room = [name for name, left in free.items() if left >= size]
                if room:
                    name = random.choice(room)
                    free[name] -= size
                    placed.append(running(f"low-{k}", name, size, number=index))
            if placed:
                pods += placed
                low.append(holding(f"low-{k}", len(placed), size, priority=random.randint(0, 1)))
        quota = sum(sizes.values()) - random.choice((0, 0, 1))
        gpus, count = random.choice((1, 2, 2, 4)), random.randint(1, 4)
        high = workload("high", count, gpus, priority=random.randint(1, 2))
        site = Site([node(name, gpus=size) for name, size in sizes.items()], pods, quota)
        plain = victims(site.decide(*low, high, proof=False))
        if not plain:
            continue
        gone = [each for each in pods if each.workload.removeprefix("ns/") in plain]
        for each in gone:
            free[each.node] += dict(each.pod_class.requests)[GPU]
        fits = sum(left // gpus for left in free.values()) >= count
        result = site.decide(*low, high)
        assert victims(result) == (plain if fits else []), number
        assert (result.entries[-1].outcome is Outcome.UNPROVEN) is not fits, number
        seen["fits" if fits else "refused"] += 1
    assert min(seen["fits"], seen["refused"]) >= 30, seen


def test_where_the_scheduler_preempts_what_it_may_take_counts_as_room() -> None:
    low = holding("low", 1, 2)
    high = workload("high", 1, 4, priority=1)
    stays = pod("stays", node="n0", gpus=2, priority=50)
    site = Site([node("n0", gpus=4)], [running("low", "n0", 2), stays], quota=4)
    held = [low, holding("beside", 1, 2)]
    for priority, idle, taken in ((0, (), []), (100, (), ["low"]), (0, (stays.uid,), ["low"])):
        site.templates = {"high": Template(pod_class(gpus=4), preempts_below=priority)}
        proof = NodeProof(
            site.nodes,
            {"ns/low": {site.pods[0].uid}},
            site.template,
            NOW,
            scheduler_preempts=True,
            reclaimable=idle,
        )
        holdings, queues = Holdings(site.configuration), Queues(site.configuration)
        for each in held:
            holdings.hold(each)
        queues.push(high)
        found = victims(cycle(holdings, queues, NOW, proof=proof))
        assert found == (sorted(["beside", *taken]) if taken else [])


def two_flavors(nodes: Iterable[NodeRow], pods: Iterable[PodRow]) -> Site:
    """A queue of four GPUs in each of two flavors, and what is on their nodes."""
    site = Site(nodes, pods, quota=4)
    first = site.configuration.cluster_queues["a"]
    (group,) = first.groups
    (quotas,) = group.flavors
    several = tuple(replace(quotas, flavor=name) for name in ("new", "old"))
    changed = replace(first, groups=(replace(group, flavors=several),))
    flavors = {name: ResourceFlavor(name, {"pool": name}) for name in ("new", "old")}
    site.configuration = replace(site.configuration, cluster_queues={"a": changed}, flavors=flavors)
    return site


def test_what_fits_gets_the_flavor_whose_nodes_have_most_room_where_nodes_are_looked_at() -> None:
    nodes = [node("n1", gpus=4, labels={"pool": "new"}), node("n2", gpus=4, labels={"pool": "old"})]
    taken = pod("taken", node="n1", gpus=4, priority=9)
    low = pod("low", node="n2", gpus=4, priority=0)
    wanted = workload("wanted", 1, 4)
    template = Template(pod_class(gpus=4), preempts_below=5)
    for pods, moves, expected in (
        ([], True, ("new", "")),
        ([taken], True, ("old", "old")),
        ([taken], False, ("new", "")),
        ([taken, low], True, ("old", "old")),
        ([taken, pod("high", node="n2", gpus=4, priority=9)], True, ("new", "")),
        ([pod("below", node="n1", gpus=4, priority=0), low], True, ("new", "")),
    ):
        site = two_flavors(nodes, pods)
        site.templates["wanted"], site.moves = template, moves
        (entry,) = site.decide(wanted).entries
        assert entry.outcome is Outcome.ADMITTED and entry.admission is not None
        (pod_set,) = entry.admission.pod_sets
        assert (pod_set.flavors[GPU], entry.moved) == expected, (pods, moves)


def test_what_fits_gets_the_flavor_where_the_fewest_devices_have_to_go() -> None:
    """Idle work goes before lower priorities, whatever they hold, and only for who has opted in."""
    nodes = [node("n1", gpus=8, labels={"pool": "new"}), node("n2", gpus=8, labels={"pool": "old"})]
    wanted = workload("wanted", 1, 4)
    eight, four = pod("eight", node="n1", gpus=8, priority=0), pod("four", node="n2", gpus=4)
    beside = pod("beside", node="n2", gpus=4, priority=9)
    two = [pod(f"two-{n}", node="n2", gpus=2, priority=0) for n in range(2)]
    for pods, idle, opted, expected in (
        ([eight, four, beside], (), True, "old"),
        ([eight, *two, beside], (), True, "old"),
        ([eight, four, beside], (eight.uid,), True, ""),
        ([eight, four, beside], (eight.uid,), False, "old"),
        ([eight, beside, pod("high", node="n2", gpus=4, priority=9)], (), True, ""),
    ):
        site = two_flavors(nodes, pods)
        site.templates["wanted"] = Template(pod_class(gpus=4), preempts_below=5)
        site.moves, site.idle, site.opted = True, idle, opted
        (entry,) = site.decide(wanted).entries
        assert (entry.outcome, entry.moved) == (Outcome.ADMITTED, expected), (pods, idle, opted)


def test_each_of_one_cycle_gets_a_flavor_whose_nodes_the_others_have_left() -> None:
    nodes = [node("n1", gpus=4, labels={"pool": "new"}), node("n2", gpus=8, labels={"pool": "old"})]
    site = two_flavors(nodes, [pod("taken", node="n1", gpus=2)])
    site.moves = True
    (entry,) = site.decide(workload("one", 2, 2)).entries
    assert entry.moved == "old"
    held: dict[str, Any] = {"admission": entry.admission, "reserved_at": NOW}
    (entry,) = site.decide(replace(workload("one", 2, 2), **held), workload("two", 1, 2)).entries
    assert (entry.moved, entry.outcome) == ("", Outcome.ADMITTED)
