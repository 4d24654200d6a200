"""Pods of a Job that grow, or are released, while they run, on a real API server.

`kube-controller-manager` plays the Job, and makes again what is ended; kubelets are played.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeworld.objects.paths import first
from reprieve.kube.bodies import Propagation
from reprieve.kube.errors import Forbidden
from reprieve.kube.resource import PODS
from tests.integration.control_plane import Binaries
from tests.integration.test_surplus import FLAVORS, LOCAL_QUEUES, registered, until
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    NAMESPACE,
    Object,
    cluster_queue,
    flavor,
    job,
    local_queue,
)
from tests.quota_plane.test_surplus import VALUES
from tests.reliability.stand import Stand, stand

_FRAMEWORKS = {"integrations": {"frameworks": ["batch/job", "pod"]}}


def _values() -> Object:
    quota: dict[str, Any] = VALUES["quota"]
    return {"quota": {**quota, "configuration": {**quota["configuration"], **_FRAMEWORKS}}}


async def _pods(cluster: Stand) -> dict[str, int]:
    """Return the cpus of each pod that stays and has been let go."""
    return {
        each["metadata"]["name"]: int(each["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        for each in (await cluster.client.list(PODS, dict, namespace=NAMESPACE)).items
        if not each["metadata"].get("deletionTimestamp")
        and first(each, "status.phase") in ("Pending", "Running")
        and not each["spec"].get("schedulingGates")
    }


async def _resize(cluster: Stand, name: str, cpu: str) -> None:
    pod: Object = await cluster.client.get(PODS, NAMESPACE, name, dict)
    containers = pod["spec"]["containers"]
    containers[0]["resources"]["requests"]["cpu"] = cpu
    body = {"spec": {"containers": containers}}
    await cluster.client.patch(PODS, NAMESPACE, name, body, dict, subresource="resize")


@pytest.mark.slow
async def test_what_runs_beyond_its_admission_is_refused_or_ended(
    controllers: Binaries, tmp_path: Path
) -> None:
    config = tmp_path / "values.yaml"
    config.write_text(yaml.safe_dump(_values()))
    async with stand(controllers, tmp_path, nodes=2, cpus=16) as cluster:
        arguments = (
            *("--controllers", "quota,scheduling", "--scheduler-name", "default-scheduler"),
            *("--config", str(config)),
        )
        operators = cluster.operators(*arguments)
        await operators.start()
        try:
            await until("the webhooks are registered", lambda: registered(cluster))
            await cluster.create(FLAVORS, flavor())
            await cluster.create(CLUSTER_QUEUES, cluster_queue("cq", 2))
            await cluster.create(LOCAL_QUEUES, local_queue("q", "cq"))
            await cluster.client.create(JOBS, job("a", pods=2), dict)

            async def two() -> bool:
                return sorted((await _pods(cluster)).values()) == [1, 1]

            await until("two pods run", two)
            grown, other = sorted(await _pods(cluster))
            with pytest.raises(Forbidden, match="was admitted for pods that request less cpu"):
                await _resize(cluster, grown, "8")
            await operators.stop()
            # Nobody answers the webhook, which fails open.
            await _resize(cluster, grown, "8")
            assert (await _pods(cluster))[grown] == 8
            operators = cluster.operators(*arguments)
            await operators.start()

            async def ended() -> bool:
                found = await _pods(cluster)
                return grown not in found and sum(found.values()) == 2

            await until("the one that grew was made again", ended)
            assert other in await _pods(cluster)
            before = set(await _pods(cluster))
            await cluster.client.delete(JOBS, NAMESPACE, "a", propagation=Propagation.ORPHAN)
            await cluster.client.create(JOBS, job("b", pods=2), dict)

            async def beyond() -> bool:
                return sum((await _pods(cluster)).values()) == 4

            await until("the next job runs beside what was orphaned", beyond)

            async def bounded() -> bool:
                found = await _pods(cluster)
                return not before & found.keys() and sum(found.values()) == 2

            await until("the orphaned pods are ended", bounded)
        finally:
            await operators.stop()
