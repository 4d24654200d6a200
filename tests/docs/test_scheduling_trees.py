"""What `docs/scheduling.md` says of trees: its examples, and its tree on a cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import CompositePriority, Gates, Policy
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from tests.docs.tables import DOCS
from tests.engine.builders import composite, gang, node, pod, snapshot_of
from tests.scheduling import site as sites
from tests.scheduling.site import NAMESPACE, Object, Site, site
from tests.scheduling.test_walkthrough import Person

SECTION = (DOCS / "scheduling" / "trees.md").read_text(encoding="utf-8")
HOME = "gangs"
TREES = Policy(gates=Gates(composite_pod_group=True))


def line(setting: str, snapshot: Snapshot, policy: Policy) -> str:
    """Say who gets what with a setting, and who is preempted."""
    unit = Unit(tuple(snapshot.pending), "default/train")
    attempt = Session(snapshot, policy).attempt(unit)
    assert attempt is not None and attempt.plan is not None
    nodes = ", ".join(sorted({node for _, node in attempt.plan.placement}))
    victims = ", ".join(sorted(victim.root.name for victim in attempt.plan.victims))
    return f"{setting}  train gets {nodes}; preempted: {victims}"


def evaluation(whole: bool) -> Snapshot:
    """A tree of two groups beside others."""
    return snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        composite("eval", all_or_nothing=whole, priority=1),
        gang(1, "left", parent="eval", gpus=4, priority=1, nodes=["a"]),
        gang(1, "right", parent="eval", gpus=4, priority=1, nodes=["b"]),
        pod("alone", gpus=4, priority=1, node="a"),
        pod("another", gpus=4, priority=20, node="b"),
        gang(1, "train", gpus=8, priority=10),
    )


def low_in_a_high_tree() -> Snapshot:
    """A group of low priority in a tree of high priority, and a pod between the two."""
    return snapshot_of(
        node("a", gpus=8),
        node("b", gpus=8),
        composite("tree", priority=20),
        gang(1, "low", parent="tree", gpus=8, priority=5, nodes=["a"]),
        pod("middle", gpus=8, priority=7, node="b"),
        gang(1, "train", gpus=8, priority=10),
    )


def test_the_example_of_units_is_what_goes_together() -> None:
    lines = [
        line(f"disruptionMode of eval: {mode:6}", evaluation(mode == "all"), TREES)
        for mode in ("single", "all")
    ]
    assert "\n".join(lines).replace("-0", "") in SECTION


def test_the_example_of_the_option_is_what_it_changes() -> None:
    lines = [
        line(
            f"compositePriority: {each.value:7}",
            low_in_a_high_tree(),
            replace(TREES, composite_priority=each),
        )
        for each in CompositePriority
    ]
    assert "\n".join(lines).replace("-0", "") in SECTION


def written() -> list[Object]:
    """The tree of the document."""
    (block,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
    return list(yaml.safe_load_all(block))


def shown() -> tuple[str, str]:
    """The command of the document, and what it prints."""
    (block,) = re.findall(r"```console\n\$ (.*?)```", SECTION, re.DOTALL)
    command, _, output = block.partition("\n")
    return command, output


def low_tree() -> list[Object]:
    """Three levels of low priority that go as a whole, though two pods of the three would do."""
    low: list[Object] = [
        sites.composite("nightly", min_count=1, mode="all", priority="low"),
        sites.composite("nightly-parts", min_count=1, priority="low", parent="nightly"),
    ]
    for name in ("left", "right"):
        low.append(sites.group(name, min_count=1, priority="low", parent="nightly-parts"))
        low += [sites.pod(f"{name}-{n}", 2, group=name, priority="low") for n in range(2)]
    return low[:-1]


def waiting() -> list[Object]:
    """The pods of the document's tree."""
    pods = [
        *(sites.pod(f"prefill-{n}", 2, group="prefill", priority="high") for n in range(2)),
        sites.pod("decode-0", 2, group="decode", priority="high"),
    ]
    for each in pods:
        each["metadata"]["namespace"] = HOME
    return pods


async def preempted(cluster: Site) -> set[str]:
    """Fill the nodes, let the document's tree come, and return who was preempted."""
    await cluster.operator("--feature-gates", "CompositePodGroup=true")
    await cluster.create({"kind": "Namespace", "metadata": {"name": HOME}})
    await cluster.classes()
    await cluster.create(*low_tree())

    async def filled() -> bool:
        return len(await cluster.placed()) == 3

    await cluster.until("the tree of low priority is placed", filled)
    await cluster.run()
    await cluster.create(*written(), *waiting())
    return await cluster.until_victims(3)


async def told(cluster: Site) -> dict[str, Any]:
    """Return the condition of every group of the document's tree."""
    found = {}
    for resource in (sites.COMPOSITE_GROUPS, sites.POD_GROUPS):
        for each in (await cluster.client.list(resource, dict, namespace=HOME)).items:
            for condition in each.get("status", {}).get("conditions") or ():
                what = (condition["type"], condition["status"], condition["reason"])
                found[each["metadata"]["name"]] = what
    return found


@pytest.fixture
async def cluster(tmp_path: Path) -> Any:
    nodes = [sites.node("node-0"), sites.node("node-1")]
    gates = {"CompositePodGroup": True}
    async with site(nodes, tmp_path, feature_gates=gates) as found:
        yield found


async def test_the_documents_tree_preempts_and_is_placed_as_one(
    cluster: Site, kubectl: Path
) -> None:
    assert await preempted(cluster) == {"left-0", "left-1", "right-0"}

    async def all_wait() -> bool:
        return len(await told(cluster)) == 3

    await cluster.until("every group says that it waits", all_wait)
    waits = (("False", "Unschedulable"),)
    assert {each[1:] for each in (await told(cluster)).values()} == set(waits)
    events = [event for event in await cluster.events(NAMESPACE) if event["reason"] == "Preempted"]
    assert {event["related"]["kind"] for event in events} == {"CompositePodGroup"}
    await cluster.end()

    async def all_run() -> bool:
        return {each[1] for each in (await told(cluster)).values()} == {"True"}

    await cluster.until("every group says that it is placed", all_run)
    assert len(await cluster.placed(HOME)) == 3
    assert await told(cluster) == {
        "serving": ("CompositePodGroupInitiallyScheduled", "True", "Scheduled"),
        "prefill": ("PodGroupInitiallyScheduled", "True", "Scheduled"),
        "decode": ("PodGroupInitiallyScheduled", "True", "Scheduled"),
    }
    print(
        [
            (
                i["spec"]["preemptor"],
                [v["root"]["name"] for v in i["spec"]["victims"]],
                i["spec"]["placement"],
            )
            for i in await cluster.intents()
        ]
    )
    print("\n".join(cluster.lines))
    print(await cluster.pods())
    print(
        [(e["reason"], e.get("note"), e.get("regarding")) for e in await cluster.events(NAMESPACE)]
    )
    person = Person(kubectl, cluster)
    command, output = shown()
    words = command.replace("'", "").split()[1:]
    assert await person.kubectl(*words) == output
    condition = "--for=condition=CompositePodGroupInitiallyScheduled"
    await person.kubectl("wait", "-n", HOME, "compositepodgroup/serving", condition)
    (intent,) = await cluster.intents()
    assert intent["spec"]["preemptor"]["kind"] == "CompositePodGroup"
