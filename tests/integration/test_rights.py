"""What an operator without a right does: no harm, and it says what is missing."""

from __future__ import annotations

import pytest

from reprieve.kube.errors import Forbidden
from tests.integration.site import DEPLOYMENTS, JOBS, NAMESPACE, Site, job


async def test_without_the_right_to_delete_work_stays_until_the_right_is_given(
    site: Site,
) -> None:
    assert site.stage.rights is not None
    await site.stage.rights.deny("delete", "batch", "jobs")
    site.reports("Job/notebook", 0)
    await site.create(job("notebook", 4, policy="Always", grace_period="1s"))
    operator = await site.operator()
    workload = await site.in_phase("Job/notebook", "Idle")

    async def told() -> bool:
        return "Warning PreemptionFailed" in await site.events(workload)

    await site.until(told, "the event about the missing right")
    left = await site.find(JOBS, "notebook")
    assert "deletionTimestamp" not in left["metadata"]
    assert any("lacks RBAC delete permission for Job" in line for line in operator.tail())

    await site.stage.rights.allow("delete", "batch", "jobs")
    await site.in_phase("Job/notebook", "Preempted")
    assert await site.find(JOBS, "notebook") == {}


async def test_a_refusal_names_the_rule_to_add(site: Site) -> None:
    assert site.stage.rights is not None
    await site.stage.rights.deny("get", "apps", "deployments")

    with pytest.raises(Forbidden) as refusal:
        await site.operator_client.get(DEPLOYMENTS, NAMESPACE, "any", dict)

    assert refusal.value.rule == (
        '- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["get"]}'
    )
