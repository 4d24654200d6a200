"""`reprieve explain` counts the members and victims of a large plan, which stands in parts."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from kubeworld.units.durations import SECOND
from reprieve.cli.explain import explain
from tests.scheduling.memory import Memory, memory
from tests.scheduling.site import group, pod

POOL = "karpenter.sh/nodepool"
NODES = 54


def _full(cluster: Memory) -> None:
    """Two thirds of the nodes are of pool a; the pods of every third one are of a group."""
    cluster.nodes([4] * NODES)
    for index in range(NODES):
        node = cluster.api.objects["nodes"]["", f"node-{index}"]
        labels = {**node["metadata"]["labels"], POOL: "b" if index % 3 == 2 else "a"}
        cluster.api.put("nodes", {**node, "metadata": {**node["metadata"], "labels": labels}})
    cluster.create(group("batch", priority="low"))
    for index in range(2 * NODES):
        of = "batch" if index // 2 % 3 == 2 else ""
        cluster.running(pod(f"low-{index}", 2, group=of, priority="low"), f"node-{index // 2}")


async def _recorded(folder: Path) -> tuple[str, str]:
    """Return the record's name, and the file with it and its parts as kubectl writes them."""
    async with memory() as cluster:
        _full(cluster)
        members = [pod(f"high-{n:02}", 4, group="high", priority="high") for n in range(NODES)]
        cluster.create(group("high", min_count=NODES, priority="high"), *members)
        cluster.start()
        await cluster.until(lambda: len(cluster.victims()) == 2 * NODES)
        cluster.end_all()
        await cluster.until(lambda: len(cluster.placed()) == NODES)
        await cluster.pass_time(5 * SECOND)
        (intent,) = cluster.intents()
        assert intent["spec"]["parts"] and not intent["spec"]["victims"]
        items = [
            {**intent, "kind": "Preemption"},
            *({**part, "kind": "PreemptionPart"} for part in cluster.parts().values()),
        ]
    file = folder / "record.yaml"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    return intent["metadata"]["name"], str(file)


async def test_a_large_plan_is_told_in_sums_and_with_all_names_on_demand(tmp_path: Path) -> None:
    name, file = await _recorded(tmp_path)
    told = CliRunner().invoke(explain, [name, "-f", file])
    assert told.exit_code == 0, told.output
    lines = [" ".join(line.split()) for line in told.output.splitlines()]
    assert any("the same plan" in line for line in lines)
    assert f"{2 * NODES} victims on {NODES} nodes; --all names them:" in lines
    assert "COUNT NODE POOL NAMESPACE GROUP RULE OUTCOME" in lines
    third = 2 * NODES // 3
    assert f"{2 * third} a team - lower priority Evicted" in lines
    assert f"{third} b team team/batch lower priority Evicted" in lines
    assert (
        f"{2 * NODES // 3} a team team/high" in lines and f"{NODES // 3} b team team/high" in lines
    )
    assert f"{NODES} pods fit on {NODES} nodes" in lines
    assert len(lines) < 40
    everything = CliRunner().invoke(explain, [name, "-f", file, "--all"])
    assert everything.exit_code == 0
    for number in range(2 * NODES):
        assert f"team/low-{number} (" in everything.output
    one = CliRunner().invoke(explain, [name, "-f", file, "--workload", "team/low-7"])
    assert one.exit_code == 0 and "is preempted" in one.output


async def test_a_file_without_all_parts_is_refused_with_what_is_accepted(tmp_path: Path) -> None:
    name, file = await _recorded(tmp_path)
    _leave_out_the_parts(Path(file))
    refused = CliRunner().invoke(explain, [name, "-f", file])
    assert refused.exit_code != 0
    assert "0 of 1 parts are there" in str(refused.exception)
    assert "kubectl get preemptions,preemptionparts -o yaml" in str(refused.exception)


def _leave_out_the_parts(file: Path) -> None:
    listed = json.loads(file.read_text())
    listed["items"] = [each for each in listed["items"] if each["kind"] == "Preemption"]
    file.write_text(json.dumps(listed))
