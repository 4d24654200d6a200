"""One demand has one name in what its tenants read, whichever planes decided about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from reprieve.api.reprieve import ObjectRef
from reprieve.execution.accounts.demand_names import _READ, DemandNames
from reprieve.kube.resource import GPU_WORKLOADS, PODS, Resource
from tests.execution.test_disruptions import Story, processes_end
from tests.execution.test_executor import PLANES
from tests.granted import granted
from tests.scheduling.site import Object

__all__ = ["processes_end"]

JOBS = Resource("batch", "v1", "jobs", "Job")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
KINDS = {each.kind: each for each in (PODS, GPU_WORKLOADS, WORKLOADS, JOBS, JOB_SETS)}


def reference(kind: str, name: str) -> dict[str, Any]:
    version = KINDS[kind].api_version
    return {"apiVersion": version, "kind": kind, "name": name, "uid": f"{name}-uid"}


def there(story: Story, kind: str, name: str, *above: str, uid: str = "", **spec: Any) -> None:
    """Store an object of the namespace `team`; `above`: kind and name of its controller."""
    metadata: Object = {"namespace": "team", "name": name, "uid": uid or f"{name}-uid"}
    if above:
        metadata["ownerReferences"] = [{**reference(*above), "controller": True}]
    resource = KINDS[kind]
    plural = f"{resource.plural}.{resource.group}".rstrip(".")
    story.api.put(plural, {"kind": kind, "metadata": metadata, "spec": spec})


@pytest.fixture
async def story() -> AsyncIterator[Story]:
    """Three victims in the namespace `team` for the pod `secret-project` of the same namespace."""
    found = Story(PLANES["scheduling"], space="team")
    found.api.served = list(KINDS.values())
    yield found


async def test_all_planes_name_one_demand_by_the_topmost_object_above_it(story: Story) -> None:
    there(story, "JobSet", "train")
    there(story, "Job", "train-w-0", "JobSet", "train")
    there(story, "Pod", "train-w-0-abc", "Job", "train-w-0")
    there(story, "GpuWorkload", "gpus-of-it", workloadRef=reference("JobSet", "train"))
    there(story, "Workload", "quota-of-it", "JobSet", "train")
    there(story, "Pod", "alone")
    there(story, "Pod", "of-another", "Job", "made-again")
    there(story, "Job", "made-again", uid="another")
    names = DemandNames(story.client, story.clock)

    async def of(kind: str, name: str) -> str:
        return await names.of(ObjectRef(KINDS[kind].api_version, kind, name, f"{name}-uid", "team"))

    assert await of("Pod", "train-w-0-abc") == "JobSet/train"
    assert await of("GpuWorkload", "gpus-of-it") == "JobSet/train"
    assert await of("Workload", "quota-of-it") == "JobSet/train"
    assert await of("JobSet", "train") == "JobSet/train"
    # Without an owner; whose owner is another object of that name; deleted; of a kind not served.
    assert await of("Pod", "alone") == "Pod/alone"
    assert await of("Pod", "of-another") == "Pod/of-another"
    assert await of("Pod", "deleted") == "Pod/deleted"
    story.api.served.remove(JOBS)
    assert await DemandNames(story.client, story.clock).of(
        ObjectRef("v1", "Pod", "train-w-0-abc", "train-w-0-abc-uid", "team")
    ) == ("Pod/train-w-0-abc")


async def test_a_tenant_reads_the_job_that_the_demand_is_of(story: Story) -> None:
    there(story, "Job", "train")
    there(story, "Pod", "secret-project", "Job", "train")
    await story.carry()
    await story.until_closed()
    assert {each["preemptor"] for each in story.specs()} == {"Job/train"}


def test_every_kind_that_is_read_is_granted_to_some_plane() -> None:
    read = {(group, f"{kind.lower()}s") for group, kinds in _READ.items() for kind in kinds}
    assert read <= {(group, plural) for verb, group, plural in granted() if verb == "get"}
