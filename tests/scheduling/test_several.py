"""Three operators with three scheduler names fill the same nodes at the same time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kubelocal.cluster import Stage, Write
from tests.scheduling.site import NAMESPACE, node, pod, site

pytestmark = pytest.mark.real_time  # three operators, each with a loop of its own

_NAMES = ("red", "green", "blue")


async def test_schedulers_that_share_nodes_never_fill_one_beyond_its_room(tmp_path: Path) -> None:
    nodes = [node(f"node-{i}", 8) for i in range(4)]
    async with site(nodes, tmp_path) as cluster:
        api = cluster.embedded.cluster.api
        kind = cluster.embedded.cluster.registry.by_kind("v1", "Pod")
        assert kind is not None
        over: list[Counter[str]] = []
        binders: Counter[str] = Counter()

        async def fits(write: Write, at: Stage) -> None:
            if at is Stage.STORED and write.path.endswith("/binding"):
                pods = (await api.list(kind, NAMESPACE)).objects
                used = Counter(
                    each["spec"]["nodeName"] for each in pods if each["spec"].get("nodeName")
                )
                if any(number > 8 for number in used.values()):
                    over.append(used)
                name = write.path.split("/")[-2]
                binders[name.partition("-")[0]] += 1

        cluster.hook = fits
        await cluster.create(
            *(
                pod(f"{name}-{i}", 1, scheduler=name)
                for i in range(12)  # 36 pods for 32 places
                for name in _NAMES
            )
        )

        for name in _NAMES:
            await cluster.create({"kind": "Namespace", "metadata": {"name": f"operator-{name}"}})
            await cluster.operator(
                "--shared-nodes",
                names=(name,),
                environment={"GPU_PREEMPTION_OPERATOR_NAMESPACE": f"operator-{name}"},
            )

        async def full() -> bool:
            return len(await cluster.placed()) == 32

        await cluster.until("all places are taken", full)
        assert not over
        assert set(binders) == set(_NAMES), "one of them took no part"
