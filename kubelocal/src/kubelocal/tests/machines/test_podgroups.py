"""A deleted PodGroup stays while it has pods."""

from __future__ import annotations

from typing import Any

from kubelocal.tests.machines.cluster import pod, sim
from kubelocal.tests.machines.test_embedded import Embedded

GROUPS = "podgroups.scheduling.k8s.io"


async def test_a_deleted_pod_group_goes_with_the_last_of_its_pods() -> None:
    embedded = Embedded()
    async with embedded.cluster:
        await embedded.machines.start()
        try:
            for name in ("used", "empty"):
                group = {
                    "apiVersion": "scheduling.k8s.io/v1beta1",
                    "kind": "PodGroup",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"schedulingPolicy": {"basic": {}}},
                }
                await embedded.objects.create(GROUPS, group)
            member: dict[str, Any] = {
                "annotations": sim(run_time="20s"),
                "restartPolicy": "Never",
                "schedulingGroup": {"podGroupName": "used"},
            }
            await embedded.create(pod("member", **member))
            await embedded.wait(5)
            for name in ("used", "empty"):
                await embedded.objects.delete(GROUPS, "default", name)
            await embedded.wait(5)
            (left,) = embedded.machines.informer.all(GROUPS)
            assert left["metadata"]["name"] == "used"
            assert left["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
            await embedded.wait(20)
            assert embedded.phases() == {"member": "Succeeded"}
            assert list(embedded.machines.informer.all(GROUPS)) == []
        finally:
            await embedded.machines.stop()
