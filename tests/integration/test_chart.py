"""Helm installs the chart on a real API server, and the operator runs under exactly its rights.

All three planes, under the chart's ServiceAccount; the API server finds the webhooks by their
Service and shows its certificate, as `docs/security.md` says; metrics are protected. The kubelet's
part (the address behind the Service, the mounted file) is done here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from kubeworld.units.clock import SystemClock
from reprieve.api.crds import KUEUE_NAMES
from reprieve.kube.bodies import Propagation
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.errors import ApiError, Forbidden, NotFound
from reprieve.kube.own_objects import DEPLOYMENTS
from reprieve.kube.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DISRUPTIONS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PREEMPTIONS,
    Resource,
)
from reprieve.planes.quota.webhooks.registration import MUTATING, VALIDATING
from reprieve.scenarios.operator import OperatorProcesses
from tests.chart.go_tools import HELM, ToolMissing, tool
from tests.chart.helm import CHART
from tests.integration.control_plane import (
    ADMINISTRATOR,
    Binaries,
    ControlPlane,
)
from tests.ports import free_ports
from tests.quota_plane.site import (
    CLUSTER_QUEUES,
    JOBS,
    NAMESPACE,
    WORKLOADS,
    cluster_queue,
    flavor,
    job,
    local_queue,
    priority_class,
)
from tests.webhooks.clients import client as client_certificate

Object = dict[str, Any]
OPERATOR = "system:serviceaccount:reprieve:reprieve"
HOOK = "system:serviceaccount:reprieve:reprieve-uninstall"
READER, TENANT = "reader", "tenant"
OLD_WORKLOADS = Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
FLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False)
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
CLASSES = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", False
)
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False
)
RBAC = "rbac.authorization.k8s.io"
ROLE_BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding")
_PATIENCE_S = 120.0


class Installed:
    """A release on a real API server, and the operator that runs for it."""

    def __init__(self, plane: ControlPlane, folder: Path, authority: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.authority = authority
        self.port, self.metrics_port = free_ports(2)
        self.operator: OperatorProcesses | None = None

    def kubeconfig(self, user: str) -> Path:
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        self.plane.write_kubeconfig(path, user)
        return path

    @contextlib.asynccontextmanager
    async def client(self, user: str) -> AsyncIterator[Client]:
        found = connect(await load_connection(str(self.kubeconfig(user))), SystemClock())
        try:
            yield found
        finally:
            await found.close()

    async def helm(self, *arguments: str) -> str:
        home = {f"HELM_{name}_HOME": str(self.folder) for name in ("CACHE", "CONFIG", "DATA")}
        process = await asyncio.create_subprocess_exec(
            str(tool(HELM)),
            *arguments,
            *("--namespace", "reprieve"),
            env={**os.environ, **home, "KUBECONFIG": str(self.kubeconfig(ADMINISTRATOR))},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        return said.decode()

    async def install(self, admin: Client) -> None:
        values = {
            "controllers": ["idle", "scheduling", "quota"],
            "gpuPreemption": {"enabled": True, "metricsEndpoint": "http://127.0.0.1:1/metrics"},
            "metrics": {"authentication": True},
            "quota": {
                "configuration": {
                    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                    "kind": "Configuration",
                    "integrations": {"frameworks": ["batch/job", "pod"]},
                    "managedJobsNamespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}
                    },
                },
                "webhooks": {
                    "port": self.port,
                    "clientCertificate": {"configMap": "clients", "names": ["kube-apiserver"]},
                },
            },
        }
        file = self.folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        await self.helm("install", "reprieve", str(CHART), "-f", str(file), "--create-namespace")
        # The kubelet's part: where the Service's pod is, and what is mounted into it.
        address = {
            "metadata": {
                "name": "reprieve-webhook",
                "namespace": "reprieve",
                "labels": {"kubernetes.io/service-name": "reprieve-webhook"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True}}],
            "ports": [{"name": "webhook", "port": self.port, "protocol": "TCP"}],
        }
        await admin.create(SLICES, address, dict)
        maps = Resource("", "v1", "configmaps", "ConfigMap")
        held: Object = await admin.get(maps, "reprieve", "reprieve", dict)
        mounted = "/etc/reprieve-webhook-clients/ca.crt"
        assert mounted in held["data"]["config.yaml"]
        config = self.folder / "config.yaml"
        config.write_text(held["data"]["config.yaml"].replace(mounted, str(self.authority)))
        self.operator = OperatorProcesses(
            self.kubeconfig(OPERATOR),
            {
                "GPU_PREEMPTION_ENABLED": "true",
                "GPU_PREEMPTION_METRICS_ENDPOINT": "http://127.0.0.1:1/metrics",
                "GPU_PREEMPTION_OPERATOR_NAMESPACE": "reprieve",
            },
            arguments=(
                *("--controllers", "idle,scheduling,quota", "--config", str(config)),
                *("--metrics-port", str(self.metrics_port), "--metrics-auth", "kubernetes"),
            ),
        )
        await self.operator.start()

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        while not await holds():
            assert self.operator is not None
            said = "\n".join(self.operator.tail())
            assert "\nError: " not in said, said
            assert asyncio.get_running_loop().time() < deadline, f"in vain: {what}\n{said}"
            await asyncio.sleep(0.5)

    async def read(self, path: str, user: str) -> int:
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        headers = {"Authorization": f"Bearer token-of-{user}"} if user else {}
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"https://127.0.0.1:{self.metrics_port}{path}", headers=headers, ssl=trust
            ) as response,
        ):
            return response.status


def own_address() -> str:
    """Return an address of this machine at which the API server may be sent to something."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


@pytest.fixture
async def installed(binaries: Binaries, tmp_path: Path) -> AsyncIterator[Installed]:
    try:
        tool(HELM)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    theirs, trusted = client_certificate("kube-apiserver")
    for name, content in (
        ("client.crt", theirs.certificate),
        ("client.key", theirs.key),
        ("clients.crt", trusted),
    ):
        (tmp_path / name).write_bytes(content)
    credentials = {
        "client-certificate": str(tmp_path / "client.crt"),
        "client-key": str(tmp_path / "client.key"),
    }
    users = [{"name": "reprieve-webhook.reprieve.svc", "user": credentials}]
    called = {"apiVersion": "v1", "kind": "Config", "users": users}
    (tmp_path / "webhooks.kubeconfig").write_text(yaml.safe_dump(called))
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(tmp_path / "webhooks.kubeconfig"),
    }
    admission = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {"name": f"{each}AdmissionWebhook", "configuration": configuration}
            for each in ("Validating", "Mutating")
        ],
    }
    (tmp_path / "admission.yaml").write_text(yaml.safe_dump(admission))
    accounts = "system:serviceaccounts"
    users_of_it = {ADMINISTRATOR: "system:masters", OPERATOR: accounts, HOOK: accounts}
    users_of_it |= {READER: "readers", TENANT: "tenants"}
    arguments = (
        "--enable-aggregator-routing=true",
        f"--admission-control-config-file={tmp_path / 'admission.yaml'}",
    )
    flags = {
        "kube-apiserver": arguments,
        # No kubelet reports that the node is there.
        "kube-controller-manager": ("--controllers=*,-node-lifecycle-controller",),
    }
    plane = ControlPlane(binaries, tmp_path, users_of_it, flags)
    found = Installed(plane, tmp_path, tmp_path / "clients.crt")
    try:
        plane.start()
        yield found
    finally:
        if found.operator is not None:
            print(*found.operator.tail(), sep="\n")
            await found.operator.stop()
        plane.stop()


@pytest.mark.slow
async def test_all_planes_run_under_the_charts_rights_on_a_real_api_server(
    installed: Installed,
) -> None:
    async with installed.client(ADMINISTRATOR) as admin, installed.client(OPERATOR) as operator:
        await installed.install(admin)
        await admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}}, dict)
        # All planes prove quota and nodes together: without a node nobody is preempted.
        await admin.create(NODES, node("node-0", 64), dict)

        numbers = itertools.count()

        async def asked() -> bool:
            name = f"probe-{next(numbers)}"
            made: Object = await admin.create(JOBS, job(name, suspend=False), dict)
            await admin.delete(JOBS, NAMESPACE, name, propagation=Propagation.BACKGROUND)
            return made["spec"]["suspend"] is True

        await installed.until("the API server asks the webhooks", asked)
        await passes_helms_test(installed, admin)
        await queue_and_preempt(installed, admin)
        await tenants_read_their_story(installed, admin)
        await are_refused(installed, admin, operator)
        await protect_metrics(installed, admin)
        said = "\n".join(installed.operator.tail(400)) if installed.operator else ""
        assert "forbidden" not in said.lower(), said
        assert "Traceback" not in said, said
        await go_without_a_trace(installed, admin)


async def passes_helms_test(installed: Installed, admin: Client) -> None:
    """`helm test` ends well, its pod being run here: the program of its container, on this port."""
    ran: list[tuple[int, str]] = []

    async def runs_the_pod() -> None:
        while True:
            with contextlib.suppress(NotFound):
                pod: Object = await admin.get(PODS, "reprieve", "reprieve-test", dict)
                break
            await asyncio.sleep(0.2)
        (container,) = pod["spec"]["containers"]
        program, url = container["args"]
        assert container["command"] == ["python", "-c"]
        assert url == "https://reprieve.reprieve.svc:8080/readyz"
        service = "reprieve.reprieve.svc:8080"
        url = url.replace(service, f"127.0.0.1:{installed.metrics_port}")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", program, url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode is not None
        ran.append((process.returncode, said.decode()))
        phase = "Failed" if process.returncode else "Succeeded"
        change = {"phase": phase}
        await admin.patch_status(PODS, "reprieve", "reprieve-test", change, dict)

    kubelet = asyncio.create_task(runs_the_pod())
    said = await installed.helm("test", "reprieve", "--timeout", "120s")
    await kubelet
    assert [code for code, _ in ran] == [0], ran
    assert "Phase:          Succeeded" in said, said


async def queue_and_preempt(installed: Installed, admin: Client) -> None:
    """Queues are judged, jobs suspended and started, pods gated and let go, versions converted."""
    made: Object = await admin.create(FLAVORS, flavor(), dict)
    assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    bad = cluster_queue("bad", 4)
    bad["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] = "9"
    with pytest.raises(ApiError, match=r"vclusterqueue\.kb\.io.*denied the request"):
        await admin.create(CLUSTER_QUEUES, bad, dict)
    preemption = {"withinClusterQueue": "LowerPriority"}
    await admin.create(CLUSTER_QUEUES, cluster_queue("cq", 4, preemption=preemption), dict)
    await admin.create(LOCAL_QUEUES, local_queue("q", "cq"), dict)
    for name, value in (("low", 1), ("high", 100)):
        await admin.create(CLASSES, priority_class(name, value), dict)
    await admin.create(JOBS, job("low", priority="low", pods=3), dict)
    gated: Object = await admin.create(PODS, pod("solo"), dict)
    assert {"name": "kueue.x-k8s.io/admission"} in gated["spec"]["schedulingGates"]

    async def running(*names: str) -> bool:
        jobs = (await admin.list(JOBS, dict, namespace=NAMESPACE)).items
        return {one["metadata"]["name"] for one in jobs if not one["spec"]["suspend"]} == {*names}

    async def let_go() -> bool:
        held: Object = await admin.get(PODS, NAMESPACE, "solo", dict)
        return not held["spec"].get("schedulingGates")

    await installed.until("the job runs", lambda: running("low"))
    await installed.until("the pod is let go", let_go)
    await admin.create(JOBS, job("high", priority="high", pods=3), dict)
    await installed.until("the job is preempted", lambda: running("high"))
    old, new = [
        {
            each["metadata"]["name"]: each["spec"]
            for each in (await admin.list(version, dict, namespace=NAMESPACE)).items
            # A job that asked whether the webhooks are there may have left one, without a class.
            if not each["metadata"]["name"].startswith("job-probe-")
        }
        for version in (OLD_WORKLOADS, WORKLOADS)
    ]
    assert {each["priorityClassSource"] for each in old.values()} == {
        "kueue.x-k8s.io/workloadpriorityclass"
    }
    assert old.keys() == new.keys() and len(old) == 3


async def tenants_read_their_story(installed: Installed, admin: Client) -> None:
    """A viewer of the namespace reads why work was preempted there, and no record of a plan."""
    binding = {
        "metadata": {"name": "viewers", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": TENANT}],
    }
    await admin.create(ROLE_BINDINGS, binding, dict)
    async with installed.client(TENANT) as tenant:
        told: list[Object] = []

        async def may_read() -> bool:
            try:
                told[:] = (await tenant.list(DISRUPTIONS, dict, namespace=NAMESPACE)).items
            except Forbidden:
                return False
            return bool(told)

        await installed.until("the tenant reads what became of the job", may_read)
        (disruption,) = told
        spec = disruption["spec"]
        assert spec["subject"]["name"].startswith("job-low-") and spec["times"] == 1
        assert spec["preemptor"] == "Job/high" and spec["sparedBy"]
        name = disruption["metadata"]["name"]
        for refused in (
            tenant.list(PREEMPTIONS, dict, namespace="reprieve"),
            tenant.list(PREEMPTIONS, dict, namespace=NAMESPACE),
            tenant.list(DISRUPTIONS, dict, namespace="reprieve"),
            tenant.delete(DISRUPTIONS, NAMESPACE, name),
            tenant.patch(DISRUPTIONS, NAMESPACE, name, {"spec": {"times": 9}}, dict),
        ):
            with pytest.raises(Forbidden):
                await refused


async def are_refused(installed: Installed, admin: Client, operator: Client) -> None:
    """The operator's account changes no images, and no webhooks but its own."""
    held: Object = await admin.get(PODS, NAMESPACE, "solo", dict)
    held["spec"]["containers"][0]["image"] = "registry.example/other:1"
    with pytest.raises(Forbidden, match="Reprieve changes no images of pods"):
        await operator.replace(PODS, held, dict)
    held = await admin.get(PODS, NAMESPACE, "solo", dict)
    held["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "00000000-0000-0000-0000-0"}
    ]
    with pytest.raises(Forbidden, match="Reprieve changes no owners of pods"):
        await operator.replace(PODS, held, dict)
    for resource in (MUTATING, VALIDATING):
        with pytest.raises(Forbidden):
            await operator.create(resource, {"metadata": {"name": "mine"}}, dict)
        with pytest.raises(Forbidden):
            await operator.apply(
                resource,
                {
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "metadata": {"name": "other"},
                },
                dict,
            )
    # Whoever is not the API server is refused before it has said anything.
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    url = f"https://127.0.0.1:{installed.port}/validate-kueue-x-k8s-io-v1beta2-clusterqueue"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=b"{}", ssl=trust) as response,
    ):
        assert response.status == 403


async def protect_metrics(installed: Installed, admin: Client) -> None:
    role = "reprieve-reprieve-metrics-reader"
    binding = {
        "metadata": {"name": "readers"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": role,
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}],
    }
    assert await installed.read("/healthz", "") == 200
    assert await installed.read("/readyz", "") == 200
    assert await installed.read("/metrics", "") == 401
    assert await installed.read("/metrics", "nobody") == 401
    assert await installed.read("/metrics", TENANT) == 403
    await admin.create(BINDINGS, binding, dict)

    async def read() -> bool:
        return await installed.read("/metrics", READER) == 200

    await installed.until("whoever is bound reads metrics", read)


async def go_without_a_trace(installed: Installed, admin: Client) -> None:
    """Nothing hangs and nothing fails closed once the release is gone; its hook is played here."""
    assert installed.operator is not None
    held: Object = await admin.get(CLUSTER_QUEUES, "", "cq", dict)
    assert held["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    said: list[str] = []
    kubelets = [
        asyncio.create_task(ends_the_operator(installed, admin)),
        asyncio.create_task(runs_the_hook(installed, admin, said)),
    ]
    await installed.helm("uninstall", "reprieve", "--timeout", "180s")
    await asyncio.gather(*kubelets)
    assert "deployment reprieve/reprieve scaled to 0" in said[0], said
    lease: Object = await admin.get(LEASES, "reprieve", "reprieve", dict)
    assert not lease["spec"].get("holderIdentity")
    for resource in (MUTATING, VALIDATING):
        with pytest.raises(NotFound):
            await admin.get(resource, "", "reprieve-quota", dict)
    for name in KUEUE_NAMES:
        crd: Object = await admin.get(CUSTOM_RESOURCE_DEFINITIONS, "", name, dict)
        assert crd["spec"]["conversion"]["strategy"] == "None", name
    for kind in ("roles", "rolebindings"):
        left = await admin.list(Resource(RBAC, "v1", kind, ""), dict, namespace="reprieve")
        assert left.items == [], kind

    async def old_version_is_served() -> bool:
        # The API server takes a changed definition over after a moment.
        with contextlib.suppress(ApiError):
            return bool((await admin.list(OLD_WORKLOADS, dict, namespace=NAMESPACE)).items)
        return False

    await installed.until("v1beta1 is served", old_version_is_served)
    await admin.create(CLUSTER_QUEUES, cluster_queue("open", 1), dict)
    for resource, namespace, name in (
        (CLUSTER_QUEUES, "", "cq"),
        (FLAVORS, "", flavor()["metadata"]["name"]),
        (NAMESPACES, "", NAMESPACE),
    ):
        await admin.delete(resource, namespace, name)

        async def gone(resource: Resource = resource, name: str = name) -> bool:
            try:
                await admin.get(resource, "", name, dict)
            except NotFound:
                return True
            return False

        await installed.until(f"{resource.kind} {name} is gone", gone)


async def ends_the_operator(installed: Installed, admin: Client) -> None:
    """Do what the kubelet does when the Deployment is scaled to zero."""
    assert installed.operator is not None
    while True:
        with contextlib.suppress(NotFound):
            deployment: Object = await admin.get(DEPLOYMENTS, "reprieve", "reprieve", dict)
            if deployment["spec"]["replicas"] == 0:
                return await installed.operator.stop()
        await asyncio.sleep(0.2)


async def runs_the_hook(installed: Installed, admin: Client, said: list[str]) -> None:
    """Run the program of the hook's pod under its account, and report the pod's end."""
    hook = installed.kubeconfig(HOOK)
    while True:
        found = await admin.list(
            PODS, dict, namespace="reprieve", label_selector="job-name=reprieve-uninstall"
        )
        if found.items:
            break
        await asyncio.sleep(0.2)
    (container,) = found.items[0]["spec"]["containers"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reprieve", *container["args"], "--kubeconfig", str(hook)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    said.append(printed.decode())
    assert process.returncode == 0, said
    change = {"phase": "Succeeded"}
    await admin.patch_status(PODS, "reprieve", found.items[0]["metadata"]["name"], change, dict)


def node(name: str, cpu: int) -> Object:
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def pod(name: str) -> Object:
    """Return a pod that is queued by itself."""
    asks = {"requests": {"cpu": "1"}}
    container = {"name": "c", "image": "registry.example/app:1", "resources": asks}
    return {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {
                "kueue.x-k8s.io/queue-name": "q",
                "kueue.x-k8s.io/priority-class": "high",
            },
        },
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
