"""Random clusters with trees of composite groups, as preemptors and as victims.

Made from the random clusters without, the same for a seed. Now and then a parent is missing, a
child has another priority than its root, or the option `compositePriority` is Nearest.
"""

from __future__ import annotations

from random import Random

from tests.oracle.scheduling.clusters import PRIORITIES, random_cluster
from tests.oracle.scheduling.objects import Object, name_of
from tests.oracle.scheduling.situations import PREEMPTOR_PRIORITY, ZONE

MODES = ("all", "all", "single", None)


def random_forest(seed: int) -> Object:
    """A cluster with `pending` and `preemptor`, ready for `group.cycle`."""
    random = Random(f"forest {seed}")
    cluster = random_cluster(seed)
    if not cluster["features"]["GenericWorkload"]:
        cluster["features"]["GenericWorkload"] = True
    cluster["features"] |= {"CompositePodGroup": True, "TopologyAwareWorkloadScheduling": True}
    cluster["compositePodGroups"] = []
    if random.random() < 0.25:
        cluster["compositePriority"] = "Nearest"
    _victim_trees(random, cluster)
    if "podGroup" in cluster["preemptor"]:
        _preemptor_tree(random, cluster)
    for each in (*cluster["podGroups"], *cluster["compositePodGroups"]):
        second = random.choice((0, 0, random.randrange(60)))
        each["metadata"]["creationTimestamp"] = f"2023-11-14T21:00:{second:02}Z"
    return cluster


def _composite(name: str, priority: int, gang: int | None, mode: str | None) -> Object:
    policy: Object = {"gang": {"minGroupCount": gang}} if gang else {"basic": {}}
    spec: Object = {"schedulingPolicy": policy, "priority": priority}
    if mode:
        spec["disruptionMode"] = {mode: {}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-composite-{name}"}
    return {"kind": "CompositePodGroup", "metadata": metadata, "spec": spec}


def _victim_trees(random: Random, cluster: Object) -> None:
    """Up to two levels of composite groups above the groups of victims, which agree with them."""
    trees: list[Object] = []
    for number in range(random.choice((1, 2, 2, 3, 4))):
        tree = _composite(
            f"tree-{number}",
            random.choice(PRIORITIES),
            random.choice((None, 1, 2)),
            random.choice(MODES),
        )
        above = [each for each in trees if "parentCompositePodGroupName" not in each["spec"]]
        if above and random.random() < 0.5:
            _join(random, tree, random.choice(above), cluster)
        trees.append(tree)
    cluster["compositePodGroups"] += trees
    for group in cluster["podGroups"]:
        if name_of(group) != "preemptor" and random.random() < 0.75:
            _join(random, group, random.choice(trees), cluster)


def _join(random: Random, child: Object, parent: Object, cluster: Object) -> None:
    name = name_of(parent) if random.random() < 0.95 else "gone"
    child["spec"]["parentCompositePodGroupName"] = name
    if random.random() < (0.4 if cluster.get("compositePriority") else 0.9):
        child["spec"]["priority"] = parent["spec"]["priority"]
    for pod in cluster["pods"]:
        group = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
        if group == name_of(child) and random.random() < 0.9:
            pod["spec"]["priority"] = child["spec"]["priority"]


def _preemptor_tree(random: Random, cluster: Object) -> None:
    """The preemptor's group becomes one to three groups below a root, some behind a level more."""
    alone = next(each for each in cluster["podGroups"] if name_of(each) == "preemptor")
    count = random.choice((1, 2, 2, 3))
    names = ["preemptor", *(f"preemptor-{number}" for number in range(1, count))]
    own = [*cluster["pending"], *(p for p in cluster["pods"] if _group_of(p) == "preemptor")]
    sizes = dict.fromkeys(names, 0)
    for pod in own:
        chosen = random.choice(names)
        sizes[chosen] += 1
        pod["spec"]["schedulingGroup"] = {"podGroupName": chosen}
    topology = alone["spec"].pop("schedulingConstraints", None)
    if random.random() < 0.3:
        topology = {"topology": [{"key": ZONE}]}
    root = _composite(
        "root", PREEMPTOR_PRIORITY, random.choice((None, 1, count, count)), random.choice(MODES)
    )
    composites = [root]
    if random.random() < 0.35:
        middle = _composite("middle", PREEMPTOR_PRIORITY, random.choice((None, 1)), None)
        middle["spec"]["parentCompositePodGroupName"] = "root"
        composites.append(middle)
    if topology and random.random() < 0.6:
        random.choice(composites)["spec"]["schedulingConstraints"] = topology
    cluster["compositePodGroups"] += composites
    cluster["podGroups"].remove(alone)
    for name in names:
        group = {**alone, "metadata": {**alone["metadata"], "name": name, "uid": f"uid-{name}"}}
        size = sizes[name]
        gang = random.choice((1, max(1, size - 1), max(1, size), max(1, size)))
        policy: Object = {"gang": {"minCount": gang}} if random.random() < 0.75 else {"basic": {}}
        spec = {**alone["spec"], "schedulingPolicy": policy}
        spec["parentCompositePodGroupName"] = name_of(random.choice(composites))
        if topology and random.random() < 0.4:
            key = random.choice((ZONE, "pool"))
            spec["schedulingConstraints"] = {"topology": [{"key": key}]}
        group["spec"] = spec
        cluster["podGroups"].append(group)
    if "preemptionPolicy" in alone["spec"]:
        root["spec"]["preemptionPolicy"] = alone["spec"]["preemptionPolicy"]
    if cluster.get("compositePriority"):
        _other_priorities(random, cluster, names, own)
    first = _group_of(cluster["pending"][0])
    cluster["preemptor"] = {"podGroup": first}


def _other_priorities(random: Random, cluster: Object, names: list[str], own: list[Object]) -> None:
    for group in cluster["podGroups"]:
        if name_of(group) in names and random.random() < 0.5:
            lower = random.choice((30, 60, 90))
            group["spec"]["priority"] = lower
            for pod in own:
                if _group_of(pod) == name_of(group):
                    pod["spec"]["priority"] = lower


def _group_of(pod: Object) -> str:
    return str(pod["spec"].get("schedulingGroup", {}).get("podGroupName") or "")
