"""What our definitions refuse, and what a real API server adds to it."""

from __future__ import annotations

import pytest

from reprieve.api.crds import all_crds
from reprieve.kube.errors import Forbidden, Invalid
from reprieve.kube.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    GPU_WORKLOADS,
    PREEMPTIONS,
)
from tests.integration.site import NAMESPACE, OPERATOR_NAMESPACE, Object, Site, job


async def test_every_definition_is_accepted_as_a_whole(site: Site) -> None:
    for crd in all_crds():
        name = crd["metadata"]["name"]

        async def settled(name: str = name) -> dict[str, str] | None:
            found = await site.find(CUSTOM_RESOURCE_DEFINITIONS, name)
            listed = found.get("status", {}).get("conditions", ())
            conditions = {one["type"]: one["status"] for one in listed}
            return conditions if conditions.get("Established") == "True" else None

        conditions = await site.until(settled, f"{name} is established")
        assert conditions["NamesAccepted"] == "True"
        assert "NonStructuralSchema" not in conditions


async def test_a_preemption_is_what_it_was_written_as(site: Site) -> None:
    site.reports("Job/notebook", 0)
    await site.create(job("notebook", 4, policy="Always", grace_period="1s"))
    operator = await site.operator()
    await site.in_phase("Job/notebook", "Preempted")
    await operator.stop()
    (record,) = await site.all(PREEMPTIONS, OPERATOR_NAMESPACE)
    name = record["metadata"]["name"]

    with pytest.raises((Invalid, Forbidden)) as refusal:
        await site.client.patch(
            PREEMPTIONS, OPERATOR_NAMESPACE, name, {"spec": {"attempt": 7}}, dict
        )

    if site.name == "embedded":
        assert "immutable" in str(refusal.value)
    after = await site.find(PREEMPTIONS, name, OPERATOR_NAMESPACE)
    assert after["spec"] == record["spec"]


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"phase": "Sleeping"}, "status.phase"),
        ({"idleSince": "yesterday"}, "status.idleSince"),
        ({"phase": "Active", "conditions": [{"type": "PhaseUpdated"}]}, "status.conditions[0]"),
    ],
)
async def test_a_status_that_breaks_the_schema_is_refused(
    site: Site, status: Object, field: str
) -> None:
    workload = {
        "apiVersion": "kaiwo.silogen.ai/v1alpha1",
        "kind": "GpuWorkload",
        "metadata": {"name": "by-hand", "namespace": NAMESPACE},
        "spec": {
            "workloadRef": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "none",
                "uid": "00000000-0000-0000-0000-000000000000",
            },
            "gpuResources": {"amd.com/gpu": 1},
        },
    }
    await site.create(workload)

    with pytest.raises(Invalid) as refusal:
        await site.client.patch_status(GPU_WORKLOADS, NAMESPACE, "by-hand", status, dict)

    assert field in refusal.value.message
    await site.client.delete(GPU_WORKLOADS, NAMESPACE, "by-hand")
