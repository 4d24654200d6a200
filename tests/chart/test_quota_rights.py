"""The quota plane runs with the chart's roles and no other right, through its whole story."""

from __future__ import annotations

import contextlib
from pathlib import Path

from kubeworld.units.clock import SystemClock
from reprieve.jobs.table import BUILT_IN
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import AlreadyExists
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, PODS, SECRETS, Resource
from reprieve.planes.quota.webhooks.registration import MUTATING, VALIDATING
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, embedded_stage
from reprieve.scenarios.operator import OperatorProcesses
from tests.chart.helm import Rendered
from tests.chart.test_rights_suffice import (
    EVERYBODY,
    OF_NOTICES,
    account,
    installed_beside_the_stage,
    roles_of,
)
from tests.ports import free_port
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    NAMESPACE,
    WORKLOADS,
    Object,
    Site,
    flavor,
    job,
    node,
)
from tests.quota_plane.test_jobs import LOWER, base

Rights = set[tuple[str, str, str]]

NOT_ON_THE_TOUR = {
    ("patch", "reprieve.dev", "harmbudgets/status"),  # there is no budget
    # Disruptions that are old.
    ("delete", "reprieve.dev", "disruptions"),
    ("get", "resource.k8s.io", "resourceclaims"),  # no class of devices is mapped
    ("patch", "reprieve.dev", "disruptions"),  # of work that runs again
    # What made a Workload has changed, or its time is over.
    ("delete", "kueue.x-k8s.io", "workloads"),
    ("patch", "kueue.x-k8s.io", "workloads"),
    ("patch", "batch", "jobs/status"),  # start times, which the embedded controller ends itself
    # Flavors and checks that have no finalizer yet, or are deleted.
    ("get", "kueue.x-k8s.io", "resourceflavors"),
    ("update", "kueue.x-k8s.io", "resourceflavors"),
    ("get", "kueue.x-k8s.io", "admissionchecks"),
    ("update", "kueue.x-k8s.io", "admissionchecks"),
    ("get", "kueue.x-k8s.io", "topologies"),
    ("update", "kueue.x-k8s.io", "topologies"),
    ("patch", "kueue.x-k8s.io", "cohorts/status"),
    # The embedded cluster has no such kind.
    ("watch", "node.k8s.io", "runtimeclasses"),
    # Where fitting nodes have to be proven.
    ("get", "", "nodes"),
    ("list", "", "nodes"),
    ("watch", "", "nodes"),
}
OLD_WORKLOADS = Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
SERVICES = Resource("", "v1", "services", "Service")
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")


def granted(rendered: Rendered, kind: str) -> Rights:
    return {
        (verb, group, resource)
        for role in rendered.all(kind)
        if not role["metadata"]["name"].endswith("-disruptions-view")  # the tenants'
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def test_jobs_are_queued_and_preempted_with_exactly_the_roles_of_the_chart(
    tmp_path: Path,
) -> None:
    port = free_port()
    frameworks = ",".join(dict.fromkeys(kind.framework for kind in BUILT_IN))
    configuration = (
        "apiVersion=config.kueue.x-k8s.io/v1beta2",
        "kind=Configuration",
        f"integrations.frameworks={{{frameworks}}}",
        "managedJobsNamespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=" + NAMESPACE,
    )
    arguments = [f"quota.configuration.{each}" for each in configuration]
    arguments += ["controllers={quota}", f"quota.webhooks.port={port}", "quota.idleFirst=true"]
    rendered = installed_beside_the_stage(*(part for each in arguments for part in ("--set", each)))
    user = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{account(rendered)}"
    config = tmp_path / "config.yaml"
    config.write_text(rendered.one("ConfigMap")["data"]["config.yaml"])
    async with embedded_stage(
        [node("node-0", pool="a")],
        tmp_path,
        tls=True,
        rbac=True,
        operator_user=user,
        operator_roles=roles_of(rendered),
    ) as embedded:
        client = connect(await load_connection(str(embedded.kubeconfig)), SystemClock())
        cluster = Site(embedded, client)
        operator = OperatorProcesses(
            embedded.operator_kubeconfig,
            {"GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE},
            arguments=(
                *("--controllers", "quota", "--metrics-port", "0"),
                *("--config", str(config)),
            ),
        )
        try:
            await install(cluster, rendered, port)
            await operator.start()
            await story(cluster)
        finally:
            print(*operator.tail(), sep="\n")
            await operator.stop()
            await client.close()
        requests, refused = list(embedded.cluster.requests), dict(embedded.cluster.refused)
    asked = {tuple(question) for who, *question in requests if who == user and question[-1]}
    assert refused == {}
    everywhere, at_home = granted(rendered, "ClusterRole"), granted(rendered, "Role")
    assert asked - everywhere - at_home - EVERYBODY == set()
    assert {one for one in asked if one[0] == "watch"} - everywhere == set()
    # Nothing is granted beyond that, but to kinds of jobs of which none was queued here.
    kinds = {(kind.group, kind.plural) for kind in BUILT_IN} - {("batch", "jobs")}
    kinds |= {("trainer.kubeflow.org", f"{each}trainingruntimes") for each in ("", "cluster")}
    spare = {one for one in everywhere - asked if one[1:] not in kinds}
    assert spare - OF_NOTICES == NOT_ON_THE_TOUR


async def install(cluster: Site, rendered: Rendered, port: int) -> None:
    """Do what Helm and the kubelet do: kinds, configurations, the Service, and an address."""
    for secret in rendered.all("Secret"):
        await cluster.client.create(SECRETS, secret, dict)
    for resource in (MUTATING, VALIDATING):
        await cluster.client.create(resource, rendered.one(resource.kind), dict)
    for crd in rendered.all("CustomResourceDefinition"):
        with contextlib.suppress(AlreadyExists):
            await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd, dict)
            continue
        await cluster.client.modify(
            CUSTOM_RESOURCE_DEFINITIONS,
            "",
            crd["metadata"]["name"],
            lambda held, crd=crd: {  # type: ignore[misc]
                **crd,
                "metadata": {**held["metadata"], "labels": crd["metadata"]["labels"]},
            },
        )
    (service,) = (
        each for each in rendered.all("Service") if each["metadata"]["name"].endswith("-webhook")
    )
    await cluster.client.create(SERVICES, service, dict)
    name = service["metadata"]["name"]
    address = {
        "metadata": {
            "name": name,
            "namespace": OPERATOR_NAMESPACE,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
    }
    await cluster.client.create(SLICES, address, dict)


async def story(cluster: Site) -> None:
    """Admit, preempt, requeue and end jobs; read the old version; delete a queue."""
    client = cluster.client

    async def registered() -> bool:
        made: Object = await client.create(JOBS, job("probe", suspend=False), dict)
        await client.delete(JOBS, NAMESPACE, "probe")
        return made["spec"]["suspend"] is True

    await cluster.create({"kind": "Namespace", "metadata": {"name": NAMESPACE}})
    await cluster.until("jobs are suspended at their creation", registered, 60)
    await cluster.create(*base(4, preemption=LOWER)[1:], flavor(nodeLabels={"pool": "a"}))
    await cluster.create(job("low-a", priority="low"), job("low-b", priority="low", pods=1))
    gated: Object = await client.create(PODS, pod("solo"), dict)
    assert {"name": "kueue.x-k8s.io/admission"} in gated["spec"]["schedulingGates"]

    async def full() -> bool:
        return await cluster.admitted() == {"low-a", "low-b", "solo"}

    await cluster.until("the queue is full", full, 60)
    await cluster.create(job("high", priority="high", pods=4))
    await admitted(cluster, "high")
    old = await client.list(OLD_WORKLOADS, dict, namespace=NAMESPACE)
    sources = {each["spec"]["priorityClassSource"] for each in old.items}
    assert sources == {"kueue.x-k8s.io/workloadpriorityclass"}
    for name in ("high", "low-a", "low-b"):
        await client.delete(JOBS, NAMESPACE, name)

    async def empty() -> bool:
        return not (await client.list(WORKLOADS, dict, namespace=NAMESPACE)).items

    await cluster.until("the Workloads are gone", empty, 60)
    await client.delete(CLUSTER_QUEUES, "", "cq")

    async def gone() -> bool:
        return not (await client.list(CLUSTER_QUEUES, dict)).items

    await cluster.until("the queue is gone", gone, 60)


def pod(name: str) -> Object:
    """Return a pod that is queued by itself."""
    asks = {"requests": {"cpu": "1"}}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {
                "kueue.x-k8s.io/queue-name": "q",
                "kueue.x-k8s.io/priority-class": "low",
            },
        },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "registry.example/app:1", "resources": asks}],
        },
    }


async def admitted(cluster: Site, *names: str) -> None:
    async def holds() -> bool:
        return await cluster.admitted() == set(names) == await cluster.running()

    await cluster.until(f"{sorted(names)} admitted", holds, 60)
