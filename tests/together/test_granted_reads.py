"""What the operator lists and watches under each option is what the chart's roles grant for it.

The chart is rendered, and the operator runs with the very arguments, variables and configuration of
its Deployment, under its roles. A kind that is not served counts, too: the API server looks at
rights before it looks for the kind.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from kubelocal.server.writing.options import WriteOptions
from reprieve.scenarios.embedded import OPERATOR_NAMESPACE, EmbeddedStage, embedded_stage
from tests.chart.go_tools import HELM, ToolMissing, tool
from tests.chart.helm import Rendered, render
from tests.chart.test_rights_suffice import account, roles_of
from tests.operator_in_process import OperatorInProcess
from tests.scheduling.site import node
from tests.virtual_time import LoopClock

Kind = tuple[str, str]
Right = tuple[str, str, str]

_JOB: Final = {
    "apiVersion": "science.example/v1",
    "kind": "Simulation",
    "plural": "simulations",
    "framework": "science.example/simulation",
    "suspend": "spec.paused",
    "podSets": [{"template": "spec.template"}],
}
_KUEUE: Final = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "pod", "deployment", "statefulset"]},
}
IDLE: Final = {"gpuPreemption": {"enabled": True, "metricsEndpoint": "http://127.0.0.1:9/metrics"}}
SCHEDULING: Final = {"controllers": ["scheduling"]}
QUOTA: Final = {"controllers": ["quota"]}
ALL: Final = {"controllers": ["idle", "scheduling", "quota"], **IDLE}
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "idle": IDLE,
    "idle-best": {"gpuPreemption": {**IDLE["gpuPreemption"], "profile": "best"}},
    "idle-service": {
        "gpuPreemption": {
            "enabled": True,
            "metricsEndpoint": "http://exporter.gpu-operator.svc:5000/metrics",
        }
    },
    "scheduling": SCHEDULING,
    "scheduling-harm": {**SCHEDULING, "scheduling": {"harmOrder": True}},
    "scheduling-cap": {**SCHEDULING, "scheduling": {"preemptionPriority": {"cap": 5}}},
    "scheduling-runtime": {**SCHEDULING, "scheduling": {"maxMinRuntime": "10m"}},
    "scheduling-trees": {
        **SCHEDULING,
        "scheduling": {"featureGates": {"GenericWorkload": True, "CompositePodGroup": True}},
    },
    "scheduling-shared": {**SCHEDULING, "scheduling": {"sharedNodes": True}},
    "quota": QUOTA,
    "quota-idle": {**QUOTA, "quota": {"idleFirst": True}},
    "quota-best": {**QUOTA, "quota": {"profile": "best"}},
    "quota-kinds": {**QUOTA, "quota": {"jobKinds": [_JOB], "configuration": _KUEUE}},
    "all-best": {
        **ALL,
        "gpuPreemption": {**IDLE["gpuPreemption"], "profile": "best"},
        "scheduling": {"profile": "best", "harmOrder": True},
        "quota": {"profile": "best"},
    },
    "others": {**SCHEDULING, "watchOthers": True},
    "all-others": {**ALL, "watchOthers": True},
    "dry": {**ALL, "dryRun": True},
    "notices": {**ALL, "notice": {"enabled": True}, "notifications": {"hosts": ["*.example.com"]}},
}


@pytest.fixture(autouse=True)
def helm() -> None:
    try:
        tool(HELM)
    except ToolMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("values", OPTIONS.values(), ids=OPTIONS.keys())
async def test_the_chart_grants_what_is_listed_and_watched(
    values: dict[str, Any], tmp_path: Path
) -> None:
    rendered = render(tmp_path, values, namespace=OPERATOR_NAMESPACE)
    user = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{account(rendered)}"
    lines: list[str] = []
    async with embedded_stage(
        [node("node-0", 8)],
        tmp_path,
        clock=LoopClock(),
        rbac=True,
        kueue=True,
        operator_user=user,
        operator_roles=roles_of(rendered),
    ) as embedded:
        await installed(embedded, rendered)
        operator = operator_of(rendered, tmp_path, embedded.operator_kubeconfig, lines)
        await operator.start()
        await asyncio.sleep(70)
        await operator.stop()
        requests, refused = list(embedded.cluster.requests), dict(embedded.cluster.refused)
    asked = {(verb, group, resource) for who, verb, group, resource in requests if who == user}
    assert refused == {}, lines
    assert len(user_reads(asked)) > 5 and user_reads(asked) <= reads(rendered)


async def installed(embedded: EmbeddedStage, rendered: Rendered) -> None:
    """Create what the operator finds of the release."""
    api = embedded.cluster.api
    for kind in ("Secret", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for each in rendered.all(kind):
            served = embedded.cluster.registry.by_kind(each["apiVersion"], kind)
            assert served is not None
            await api.create(served, each["metadata"].get("namespace", ""), each, WriteOptions())


def user_reads(asked: set[Right]) -> set[Kind]:
    """Return the kinds that were listed or watched in all namespaces, or in one."""
    return {(group, resource) for verb, group, resource in asked if verb in ("list", "watch")}


def reads(rendered: Rendered) -> set[Kind]:
    """Return the kinds that the operator's roles let it list or watch."""
    return {
        (group, resource)
        for role in (*rendered.all("ClusterRole"), *rendered.all("Role"))
        if not role["metadata"]["name"].endswith("-disruptions-view")
        for rule in role["rules"]
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb in ("list", "watch")
    }


def operator_of(
    rendered: Rendered, folder: Path, kubeconfig: Path, lines: list[str]
) -> OperatorInProcess:
    """Return the operator as the Deployment runs it."""
    config = folder / "config.yaml"
    config.write_text(rendered.one("ConfigMap")["data"]["config.yaml"])
    container = rendered.container
    verb, *arguments = container["args"]
    assert verb == "run"
    arguments = [str(config) if each.startswith("/etc/reprieve/") else each for each in arguments]
    environment = {**rendered.environment, "GPU_PREEMPTION_OPERATOR_NAMESPACE": OPERATOR_NAMESPACE}
    return OperatorInProcess(
        kubeconfig,
        environment,
        arguments=(*arguments, "--metrics-port", "0"),
        on_line=lines.append,
        clock=LoopClock(),
    )
