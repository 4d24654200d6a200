"""A gang gets the rack in which other planes evict the fewest devices, and no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import CycleResult, Entry, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import PodSet, ResourceFlavor, Workload
from reprieve.engine.quota.proofs.node_proof import NodeProof
from reprieve.engine.quota.proofs.pods_wanted import Template
from reprieve.engine.quota.release import IdleUnit, Release, Standing, release
from reprieve.engine.quota.waiting.queues import Queues
from reprieve.engine.topology.model import HOSTNAME, Topology, TopologyRequest
from reprieve.engine.topology.places import Grounds
from reprieve.planes.quota.deciding.grounds import nodes_of
from reprieve.units.ids import Uid
from tests.engine.builders import GPU, node, pod, pod_class, snapshot_of
from tests.oracle.racks import Held, fits_in_a_rack, least_by_rack
from tests.quota.cases import NOW
from tests.quota.test_loops import configuration, queue
from tests.quota.test_node_proof import LOWER

RACK = "rack"
Nodes = Mapping[str, tuple[str, int]]


class Racks:
    """Nodes in racks, pods on them that hold no places, and a gang that waits for one rack."""

    def __init__(self, nodes: Nodes, held: Sequence[Held], pods: int, gpus: int) -> None:
        found = configuration(queue("a", 4096, LOWER))
        flavor = ResourceFlavor("gpus", topology="racks")
        self.configuration = replace(
            found,
            flavors={"gpus": flavor},
            topologies={"racks": Topology("racks", (RACK, HOSTNAME))},
        )
        self.held = held
        self.snapshot: Snapshot = snapshot_of(
            *(node(name, gpus=size, labels={RACK: rack}) for name, (rack, size) in nodes.items()),
            *(
                pod(e.name, node=e.node, gpus=e.gpus, priority=0 if e.may_go == 2 else 9)
                for e in held
            ),
        )
        request = TopologyRequest(required=RACK)
        pod_set = PodSet("main", pods, {GPU: gpus}, topology=request)
        self.wanted = Workload("ns", "wanted", "wanted", "ns/a", 5, pod_sets=(pod_set,))
        self.gpus = gpus

    def proof(self, *, moves: bool = True) -> NodeProof:
        return NodeProof(
            self.snapshot,
            {},
            lambda workload: {"main": Template(pod_class(gpus=self.gpus), preempts_below=5)},
            NOW,
            scheduler_preempts=True,
            reclaimable=[Uid(f"pod-{each.name}") for each in self.held if each.may_go == 1],
            moves=moves,
        )

    def standing(self) -> Standing:
        holdings, queues = Holdings(self.configuration), Queues(self.configuration)
        holdings.stand_on(Grounds(nodes_of(self.snapshot, set())))
        queues.push(self.wanted)
        proof, idle = self.proof(), self.proof(moves=False)
        return Standing(holdings, queues, idle, check=proof, now=NOW)

    def decide(self, *, moves: bool = True) -> CycleResult:
        standing = self.standing()
        return cycle(standing.holdings, standing.queues, NOW, proof=self.proof(moves=moves))

    def release(self) -> Release:
        """Return which idle work goes; each idle pod is a unit."""
        units = [
            IdleUnit(each.name, (), (Uid(f"pod-{each.name}"),), each.gpus)
            for each in self.held
            if each.may_go == 1
        ]
        return release(self.standing(), "ns/wanted", units)


def places(entry: Entry) -> dict[str, int]:
    """Return how many pods an admitted entry has on each node."""
    assert entry.admission is not None
    (pod_set,) = entry.admission.pod_sets
    assert pod_set.topology is not None
    return {each.values[0]: each.count for each in pod_set.topology.domains}


def drawn(random: Random) -> tuple[Nodes, list[Held], int, int]:
    """Return racks without room for a gang, and what the gang asks for."""
    nodes = {
        f"r{rack}-{number}": (f"r{rack}", random.choice((4, 8)))
        for rack in range(random.randint(2, 3))
        for number in range(random.randint(1, 2))
    }
    held: list[Held] = []
    for name, (_, size) in nodes.items():
        left = size
        while left > 0 and len(held) < 10 and random.random() < 0.9:
            gpus = random.choice([each for each in (1, 2, 4, 8) if each <= left])
            held.append(Held(f"p{len(held)}", name, gpus, random.choice((0, 1, 2, 2))))
            left -= gpus
    return nodes, held, random.choice((1, 2, 3)), random.choice((2, 4, 8))


def test_a_gang_is_given_the_rack_where_the_fewest_devices_go() -> None:
    random, made, refused = Random("made places"), 0, 0
    for number in range(3_000):
        if made >= 60 and refused >= 30:
            break
        nodes, held, pods, gpus = drawn(random)
        if fits_in_a_rack(nodes, held, pods, gpus):
            continue
        known = least_by_rack(nodes, held, pods, gpus)
        (entry,) = Racks(nodes, held, pods, gpus).decide().entries
        said = (number, nodes, held, pods, gpus, known)
        if known is None:
            assert entry.outcome is Outcome.NO_FIT, said
            refused += 1
            continue
        assert entry.outcome is Outcome.ADMITTED, said
        made += 1
        on = places(entry)
        assert sum(on.values()) == pods and len({nodes[each][0] for each in on}) == 1, said
        # What goes for the pods where they are now placed, by every set of pods that may go.
        may_go = [replace(each, may_go=min(each.may_go, 1)) for each in held]
        counted = held if known[0] == 1 else may_go
        names = {each: {each: (each, nodes[each][1])} for each in on}
        least = [least_by_rack(names[n], on_node(counted, n), c, gpus) for n, c in on.items()]
        assert [by for by, _ in filter(None, least)] == [1] * len(on), said
        assert sum(fewest for _, fewest in filter(None, least)) == known[1], said
    assert made >= 60 and refused >= 30, "too few of the drawn racks are made room in"


def on_node(held: Sequence[Held], name: str) -> list[Held]:
    return [each for each in held if each.node == name]


def test_nothing_is_made_where_another_scheduler_binds() -> None:
    racks = Racks({"a": ("r0", 8)}, [Held("low", "a", 8, 2)], 1, 8)
    assert racks.decide().of(Outcome.ADMITTED)
    assert not racks.decide(moves=False).of(Outcome.ADMITTED)


def test_idle_work_goes_in_the_rack_that_it_completes() -> None:
    random, made, others = Random("released racks"), 0, 0
    for number in range(3_000):
        if made >= 30 and others >= 30:
            break
        nodes, held, pods, gpus = drawn(random)
        idle = [each for each in held if each.may_go == 1]
        if fits_in_a_rack(nodes, held, pods, gpus) or not idle:
            continue
        known = least_by_rack(nodes, held, pods, gpus)
        found = Racks(nodes, held, pods, gpus).release()
        said = (number, nodes, held, pods, gpus, known, found)
        if known is None or known[0] == 2:
            assert not found.units, said
            others += 1
            continue
        made += 1
        staying = [each for each in held if each.name not in found.units]
        assert found.placed and fits_in_a_rack(nodes, staying, pods, gpus), said
        for back in found.units:
            again = [each for each in held if each.name == back]
            assert not fits_in_a_rack(nodes, [*staying, *again], pods, gpus), said
    assert made >= 30 and others >= 30, "too few of the drawn racks are completed by idle work"
