"""What a fresh decision would bind or preempt for is done within 5 s of any change.

Fields are changed at random, of every kind that the scheduling plane reads. Some seconds later a
new plane takes over, which decides about everything anew: it finds nothing to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from kubeworld.units.durations import SECOND
from reprieve.engine.scheduling.outcome import Attempt
from reprieve.planes.scheduling.cycle import decisions, futile
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import NAMESPACE, Object, group, pod

WITHIN: Final = 5 * SECOND
_GROUPS: Final = "podgroups.scheduling.k8s.io"
_ZONE: Final = "topology.kubernetes.io/zone"


class Tenants:
    """Who changes what, at random; pods and groups are numbered."""

    def __init__(self, cluster: Memory, chance: random.Random) -> None:
        self.cluster, self.api, self.chance = cluster, cluster.api, chance
        self.number = 0
        self.steps: tuple[Callable[[], object], ...] = (
            self.submit,
            self.submit_gang,
            self.submit_gang,
            self.submit_choosy,
            self.submit_choosy,
            self.submit_with_volume,
            self.ungate,
            self.end_a_pod,
            self.relabel_a_pod,
            self.resize,
            self.relabel_a_node,
            self.taint,
            self.cordon,
            self.enlarge,
            self.replace_a_node,
            self.change_minimum,
            self.reclassify_a_group,
            self.relabel_the_namespace,
            self.change_a_budget,
            self.change_a_class,
            self.change_a_volume,
            self.annotate,
        )

    def step(self) -> str:
        """Change one thing, and return what it was."""
        chosen = self.chance.choice(self.steps)
        chosen()
        return chosen.__name__

    def tidy(self) -> None:
        """Do what other controllers do when pods are gone."""

    # What comes.

    def name(self, kind: str) -> str:
        self.number += 1
        return f"{kind}-{self.number}"

    def facts(self) -> dict[str, Any]:
        return {"priority": self.chance.choice(("low", "middle", "high"))}

    def submit(self) -> None:
        made = pod(self.name("pod"), self.chance.choice((1, 2, 4)), **self.facts())
        if self.chance.random() < 0.2:
            made["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        if self.chance.random() < 0.3:
            made["spec"]["preemptionPolicy"] = "Never"
        self.cluster.create(made)

    def submit_gang(self) -> None:
        name, facts = self.name("gang"), self.facts()
        sizes = [self.chance.choice((1, 3)) for _ in range(self.chance.choice((2, 3)))]
        members = [
            pod(f"{name}-{n}", cpu, group=name, **facts) for n, cpu in enumerate(sorted(sizes))
        ]
        mode = self.chance.choice(("single", "all"))
        self.cluster.create(group(name, min_count=len(members), mode=mode, **facts), *members)

    def submit_choosy(self) -> None:
        labels = {"app": "choosy"}
        selector = {"labelSelector": {"matchLabels": labels}}
        term = {**selector, "topologyKey": _ZONE}
        spread = {**term, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        spaces = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
        choice: dict[str, Any] = self.chance.choice(
            (
                {"nodeSelector": {_ZONE: "a"}},
                {"nodeSelector": {"disk": "fast"}},
                {"topologySpreadConstraints": [spread]},
                {"affinity": {"podAffinity": _required({**term, **spaces})}},
                {"affinity": {"podAntiAffinity": _required(term)}},
                {"tolerations": [{"key": "example.com/away", "operator": "Exists"}]},
            )
        )
        made = pod(self.name("choosy"), 1, **self.facts(), **choice)
        made["metadata"]["labels"] = self.chance.choice((labels, {"app": "other"}))
        self.cluster.create(made)

    def submit_with_volume(self) -> None:
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
        self.cluster.create(pod(self.name("volume"), 1, **self.facts(), volumes=[volume]))

    # What changes.

    def any_of(self, kind: str, wanted: Callable[[Object], object] = bool) -> Object | None:
        found = [each for _, each in sorted(self.api.objects[kind].items()) if wanted(each)]
        return self.chance.choice(found) if found else None

    def change(self, kind: str, obj: Object | None, **parts: Object) -> None:
        if obj is not None:
            changed = {name: {**obj.get(name, {}), **part} for name, part in parts.items()}
            self.api.put(kind, {**obj, **changed})

    def placed(self) -> Object | None:
        return self.any_of("pods", lambda each: each["spec"].get("nodeName"))

    def ungate(self) -> None:
        gated = self.any_of("pods", lambda each: each["spec"].get("schedulingGates"))
        self.change("pods", gated, spec={"schedulingGates": []})

    def end_a_pod(self) -> None:
        found = self.any_of("pods")
        if found is not None:
            self.cluster.end(found["metadata"]["name"])

    def relabel_a_pod(self) -> None:
        labels = self.chance.choice(({"app": "choosy"}, {"app": "other"}, {}))
        self.change("pods", self.any_of("pods"), metadata={"labels": labels})

    def resize(self) -> None:
        found = self.any_of("pods")
        if found is not None:
            requests = {"requests": {"cpu": self.chance.choice(("1", "2"))}}
            (container,) = found["spec"]["containers"]
            self.change("pods", found, spec={"containers": [{**container, "resources": requests}]})

    def relabel_a_node(self) -> None:
        found = self.any_of("nodes")
        assert found is not None
        disk = self.chance.choice(({}, {"disk": "fast"}))
        labels = {
            "kubernetes.io/hostname": found["metadata"]["name"],
            _ZONE: self.chance.choice(("a", "b")),
            **disk,
        }
        self.change("nodes", found, metadata={"labels": labels})

    def taint(self) -> None:
        taint = {"key": "example.com/away", "effect": "NoSchedule"}
        taints = self.chance.choice(([], [], [taint]))
        self.change("nodes", self.any_of("nodes"), spec={"taints": taints})

    def cordon(self) -> None:
        said = self.chance.choice((False, False, True))
        self.change("nodes", self.any_of("nodes"), spec={"unschedulable": said})

    def enlarge(self) -> None:
        amounts = {"cpu": self.chance.choice(("2", "4", "6")), "memory": "256Gi", "pods": "110"}
        self.change("nodes", self.any_of("nodes"), status={"allocatable": amounts})

    def replace_a_node(self) -> None:
        found = self.any_of("nodes")
        assert found is not None
        name = found["metadata"]["name"]
        self.api.remove("nodes", "", name)
        for each in list(self.cluster.pods.values()):
            if each["spec"].get("nodeName") == name:
                self.cluster.end(each["metadata"]["name"])
        metadata = {"name": name, "labels": found["metadata"]["labels"]}
        self.api.put("nodes", {"metadata": metadata, "spec": {}, "status": found["status"]})

    def change_minimum(self) -> None:
        least = {"schedulingPolicy": {"gang": {"minCount": self.chance.choice((1, 2, 3))}}}
        self.change(_GROUPS, self.any_of(_GROUPS), spec=least)

    def reclassify_a_group(self) -> None:
        mode: Object = {"disruptionMode": {self.chance.choice(("single", "all")): {}}}
        self.change(_GROUPS, self.any_of(_GROUPS), spec=mode)

    def relabel_the_namespace(self) -> None:
        labels = {"team": self.chance.choice(("a", "b"))}
        self.api.put("namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})

    def change_a_budget(self) -> None:
        metadata = {"name": "budget", "namespace": NAMESPACE}
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "choosy"}}}
        status = {"disruptionsAllowed": self.chance.choice((0, 1))}
        self.api.put(
            "poddisruptionbudgets.policy", {"metadata": metadata, "spec": spec, "status": status}
        )

    def change_a_class(self) -> None:
        annotations = {"reprieve.dev/preempt-min-runtime": self.chance.choice(("0s", "1h"))}
        metadata = {"name": "low", "annotations": annotations}
        self.api.put("priorityclasses.scheduling.k8s.io", {"metadata": metadata, "value": 1000})

    def change_a_volume(self) -> None:
        zone = {"key": _ZONE, "operator": "In", "values": [self.chance.choice(("a", "b"))]}
        reach = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
        self.api.put(
            "persistentvolumes",
            {
                "metadata": {"name": "disk"},
                "spec": {
                    "nodeAffinity": reach,
                    "accessModes": ["ReadWriteMany"],
                    "capacity": {"storage": "1Gi"},
                    "claimRef": {"namespace": NAMESPACE, "name": "data"},
                },
                "status": {"phase": "Bound"},
            },
        )
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        self.api.put(
            "persistentvolumeclaims",
            {
                "metadata": {"name": "data", "namespace": NAMESPACE, "annotations": bound},
                "spec": {
                    "volumeName": "disk",
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
                "status": {"phase": "Bound"},
            },
        )

    def annotate(self) -> None:
        said = self.chance.choice((None, "1h"))
        annotations = {} if said is None else {"reprieve.dev/preempt-min-runtime": said}
        self.change("pods", self.placed(), metadata={"annotations": annotations})


def _required(term: Object) -> Object:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def outcome(cluster: Memory) -> dict[str, tuple[str, bool]]:
    """Return where each pod is, and whether it goes."""
    return {
        name: (
            each["spec"].get("nodeName", ""),
            bool(each["metadata"].get("deletionTimestamp")),
        )
        for name, each in cluster.pods.items()
    }


async def rest(cluster: Memory, tenants: Tenants) -> None:
    """Let victims end, and the plane do what it does, for as long as it has."""
    for _ in range(5):
        await cluster.pass_time(WITHIN // 5)
        cluster.end_all()
        tenants.tidy()
    await cluster.pass_time(WITHIN // 5)


async def play(
    seed: int,
    steps: int,
    tenants: Callable[[Memory, random.Random], Tenants] = Tenants,
    **section: Any,
) -> None:
    section = {"maxMinRuntime": "1h", **section}
    done: list[str] = []
    async with memory() as cluster:
        people = tenants(cluster, random.Random(seed))
        cluster.nodes([4] * 3, **{_ZONE: "a"})
        cluster.start(section=section)
        await cluster.settle()
        for _ in range(steps):
            done += [people.step() for _ in range(people.chance.choice((1, 1, 2)))]
            await rest(cluster, people)
            before = outcome(cluster)
            await cluster.stop()
            cluster.start(section=section)
            await cluster.pass_time(WITHIN)
            assert outcome(cluster) == before, (seed, done)
            cluster.end_all()
            people.tidy()


async def test_a_namespaces_labels_let_a_pod_come_that_wants_to_be_near_its_pods() -> None:
    async with memory() as cluster:
        cluster.nodes([4], **{_ZONE: "a"})
        there = pod("there", 1)
        there["metadata"]["labels"] = {"app": "choosy"}
        cluster.running(there, "node-0")
        cluster.start()
        term = {
            "labelSelector": {"matchLabels": {"app": "choosy"}},
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "topologyKey": _ZONE,
        }
        cluster.create(pod("waits", 1, affinity={"podAffinity": _required(term)}))
        await cluster.pass_time(30 * SECOND)
        assert "waits" not in cluster.placed()
        labels = {"team": "a"}
        cluster.api.put("namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        await cluster.pass_time(WITHIN)
        assert cluster.placed()["waits"] == "node-0"


async def test_a_gang_whose_preemption_evicts_nobody_is_bound_without_a_backoff() -> None:
    """The small member takes a node of a large one; with others gone, it takes the first node."""
    async with memory() as cluster:
        cluster.nodes([4, 4, 4])
        for number, node in enumerate((0, 0, 0, 1, 2)):
            cluster.running(pod(f"low-{number}", 1, priority="low"), f"node-{node}")
        cluster.start()
        members = [
            pod(f"gang-{n}", cpu, group="gang", priority="high") for n, cpu in enumerate((1, 3, 3))
        ]
        cluster.create(group("gang", min_count=3, priority="high"), *members)
        await cluster.settle()
        assert {cluster.placed().get(f"gang-{n}") for n in range(3)} == {
            "node-0",
            "node-1",
            "node-2",
        }
        assert not any(deleted for _, deleted in outcome(cluster).values())


async def test_what_is_tried_at_once_waits_for_its_backoff_when_that_does_not_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.start()
        tried: list[str] = []

        def fits(attempt: Attempt) -> bool:
            tried.append(attempt.unit.name)
            return True

        monkeypatch.setattr(decisions, "fits_without_victims", fits)
        monkeypatch.setattr(futile, "_is_final", lambda attempt, deferred: False)
        cluster.create(group("gang", min_count=1), pod("large", 8, group="gang"))
        await cluster.settle()
        assert len(tried) == 2
        await cluster.pass_time(30 * SECOND)
        assert 8 <= len(tried) <= 12


@pytest.mark.parametrize("seed", [0, 1, 305, 308, 320])
async def test_a_plane_that_decides_about_everything_anew_finds_nothing_to_do(seed: int) -> None:
    await play(seed, 25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
async def test_it_finds_nothing_in_many_more_plays(seed: int) -> None:
    await play(seed, 40)
