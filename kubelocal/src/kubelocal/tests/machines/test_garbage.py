"""The garbage collector."""

from __future__ import annotations

from kubelocal.machines.objects import Object
from kubelocal.tests.machines.cluster import job, pod, reference, running


def config_map(name: str, *owners: Object) -> Object:
    metadata: Object = {"name": name}
    if owners:
        metadata["ownerReferences"] = list(owners)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


async def test_dependents_of_a_vanished_owner_are_deleted() -> None:
    async with running() as cluster:
        owner = await cluster.create(config_map("owner"))
        middle = await cluster.create(config_map("middle", reference(owner)))
        await cluster.create(config_map("leaf", reference(middle, controller=False)))
        await cluster.create(config_map("other"))
        await cluster.wait()
        await cluster.delete("configmaps", "owner")
        await cluster.wait(1)
        assert cluster.names("configmaps") == ["other"]


async def test_an_owner_of_the_same_name_with_another_uid_does_not_count() -> None:
    async with running() as cluster:
        owner = await cluster.create(config_map("owner"))
        await cluster.create(config_map("mine", reference(owner)))
        await cluster.create(config_map("stale", reference(owner, uid="gone")))
        await cluster.wait(1)
        assert cluster.names("configmaps") == ["mine", "owner"]


async def test_an_object_with_a_present_owner_stays_and_loses_the_absent_one() -> None:
    async with running() as cluster:
        first = await cluster.create(config_map("first"))
        second = await cluster.create(config_map("second"))
        await cluster.create(
            config_map("both", reference(first), reference(second, controller=False))
        )
        await cluster.delete("configmaps", "first")
        await cluster.wait(1)
        references = cluster.one("configmaps", "both")["metadata"]["ownerReferences"]
        assert [r["name"] for r in references] == ["second"]


async def test_an_owner_of_a_kind_that_is_not_served_counts_as_present() -> None:
    async with running() as cluster:
        thing = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "u"}
        await cluster.create(config_map("kept", thing))
        await cluster.wait(60)
        assert cluster.names("configmaps") == ["kept"]


async def test_in_the_foreground_the_owner_goes_last() -> None:
    async with running() as cluster:
        await cluster.create(job("train", 1, parallelism=2, completions=2))
        await cluster.wait(1)
        await cluster.delete("jobs.batch", "train", propagation="Foreground")
        await cluster.wait(0.5)
        assert cluster.names("jobs.batch") == ["train"]
        assert all("deletionTimestamp" in p["metadata"] for p in cluster.all("pods"))
        await cluster.wait(5)
        assert (cluster.names("pods"), cluster.names("jobs.batch")) == ([], [])


async def test_foreground_deletion_goes_down_the_chain() -> None:
    async with running() as cluster:
        owner = await cluster.create(config_map("owner"))
        middle = await cluster.create(config_map("middle", reference(owner)))
        await cluster.create(pod("leaf", 1, owner=middle))
        await cluster.wait(1)
        await cluster.delete("configmaps", "owner", propagation="Foreground")
        await cluster.wait(0.5)
        assert cluster.names("configmaps") == ["middle", "owner"]
        await cluster.wait(5)
        assert (cluster.names("pods"), cluster.names("configmaps")) == ([], [])


async def test_orphans_lose_their_reference_and_stay() -> None:
    async with running() as cluster:
        await cluster.create(job("train", 1))
        await cluster.wait(1)
        await cluster.delete("jobs.batch", "train", propagation="Orphan")
        await cluster.wait(5)
        assert cluster.names("jobs.batch") == []
        [orphan] = cluster.all("pods")
        assert "ownerReferences" not in orphan["metadata"]
        assert orphan["status"]["phase"] == "Running"
