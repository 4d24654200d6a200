"""A deletion reaches the object that was judged, and no other one under its name."""

from __future__ import annotations

import pytest

from reprieve.kube.bodies import Propagation
from reprieve.kube.errors import Conflict, NotFound
from tests.integration.site import CONFIG_MAPS, JOBS, NAMESPACE, Object, Site, job
from tests.integration.test_restart import preempting


async def test_a_root_that_was_made_again_under_the_same_name_survives(site: Site) -> None:
    site.reports("Job/notebook", 0)
    await site.create(job("notebook", 4, grace_period="1h"))
    operator = await site.operator()
    marked = await site.in_phase("Job/notebook", "Idle")
    await operator.stop()
    await preempting(site, marked)
    await site.delete(JOBS, "notebook")
    site.reports("Job/notebook", 90)
    again = await site.create(job("notebook", 4, grace_period="1h"))

    await operator.start()
    old = marked["spec"]["workloadRef"]["uid"]
    tracked = await site.in_phase("Job/notebook", "Active", uid=again["metadata"]["uid"])
    over = await site.in_phase("Job/notebook", "Preempted", uid=old)

    assert over["metadata"]["uid"] == marked["metadata"]["uid"]
    assert tracked["metadata"]["name"] != over["metadata"]["name"]
    survivor = await site.find(JOBS, "notebook")
    assert survivor["metadata"]["uid"] == again["metadata"]["uid"]
    assert "deletionTimestamp" not in survivor["metadata"]


async def test_a_deletion_with_another_uid_is_a_conflict_and_deletes_nothing(site: Site) -> None:
    stored = await site.create(config_map("judged"))
    await site.client.delete(CONFIG_MAPS, NAMESPACE, "judged", uid=stored["metadata"]["uid"])
    again = await site.create(config_map("judged"))

    with pytest.raises(Conflict):
        await site.client.delete(CONFIG_MAPS, NAMESPACE, "judged", uid=stored["metadata"]["uid"])

    found = await site.find(CONFIG_MAPS, "judged")
    assert found["metadata"]["uid"] == again["metadata"]["uid"]
    await site.client.delete(CONFIG_MAPS, NAMESPACE, "judged", uid=again["metadata"]["uid"])
    with pytest.raises(NotFound):
        await site.client.delete(CONFIG_MAPS, NAMESPACE, "judged", uid=again["metadata"]["uid"])


async def test_a_deletion_that_was_judged_on_an_older_version_is_a_conflict(site: Site) -> None:
    stored = await site.create(job("changing", 1))
    uid, version = stored["metadata"]["uid"], stored["metadata"]["resourceVersion"]
    patch = {"metadata": {"labels": {"touched": "yes"}}}
    await site.client.patch(JOBS, NAMESPACE, "changing", patch, dict)

    with pytest.raises(Conflict):
        await site.client.delete(
            JOBS,
            NAMESPACE,
            "changing",
            uid=uid,
            resource_version=version,
            propagation=Propagation.BACKGROUND,
        )

    assert (await site.find(JOBS, "changing"))["metadata"]["uid"] == uid


def config_map(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
    }
