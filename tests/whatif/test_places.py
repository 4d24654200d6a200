"""A plan of the quota plane alone reads nodes where its flavors have topologies."""

from __future__ import annotations

from pathlib import Path

from reprieve.engine.diagnosis.causes import Cause
from reprieve.whatif.questions.answer import Outcome, Verdict
from tests.quota_plane.site import cluster_queue, flavor, job, local_queue, node, site
from tests.quota_plane.test_topologies import RACK, asking, queues, racks
from tests.whatif.asking import Object, ask


async def outcome(kubeconfig: Path, wanted: Object, config: Path | None = None) -> Outcome:
    (found,) = (await ask(kubeconfig, wanted, config=config)).answer.outcomes
    return found


async def test_pods_are_placed_by_their_topology_without_another_plane(tmp_path: Path) -> None:
    nodes = racks(a="r1", b="r2", c="r2")
    async with site(tmp_path, *queues(), nodes=nodes) as cluster:
        there = cluster.embedded.kubeconfig

        fits = await outcome(there, asking("fits", 6))
        large = await outcome(there, asking("large", 9))
        unknown = await outcome(there, asking("unknown", 6, level="cloud.example/block"))

        assert fits.verdict is Verdict.STARTS
        assert large.verdict is Verdict.NEVER_FITS
        best = "the best, r2, has capacity for 8"
        assert f"no {RACK} has capacity for 9 pods: {best}" in large.message
        assert unknown.verdict is Verdict.NEVER_FITS
        assert unknown.diagnosis is not None
        assert unknown.diagnosis.cause is Cause.LEVEL_MISSING
        assert [each.after for each in unknown.diagnosis.fixes] == [RACK]
        await cluster.create(asking("fits", 6))
        await cluster.until_admitted("fits")


async def test_a_proof_over_nodes_is_planned_without_another_plane(tmp_path: Path) -> None:
    there = (flavor(), cluster_queue("cq", 8), local_queue("q", "cq"))
    config = tmp_path / "config.yaml"
    config.write_text("quota:\n  proveNodes: true\n", encoding="utf-8")
    async with site(tmp_path, *there, nodes=[node("n0", 4)]) as cluster:
        found = await outcome(cluster.embedded.kubeconfig, job("one"), config)
        assert found.verdict is Verdict.STARTS
