"""Policies that refuse an eviction keep no preemptor waiting, in any plane of a real API server.

ValidatingAdmissionPolicies refuse the deletion, the suspension or the mark of the work that is
chosen first, with each reason that a policy may state; their messages hold the words of an
authorizer about a missing right. Each story has a node of its own with two equal parts of work.
Evictions and refusals are counted from the audit log.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from reprieve.kube.client import Client
from reprieve.kube.resource import Resource
from reprieve.scenarios.embedded import OPERATOR_USER
from reprieve.scenarios.model import NodeSpec
from reprieve.scenarios.stage import Stage
from tests.integration.audited_planes import (
    create,
    decided,
    evictions,
    runs,
    store,
    until,
    use,
)
from tests.integration.control_plane import ControlPlane
from tests.together.site import gang, job, node

pytestmark = pytest.mark.usefixtures("with_pod_groups")

_GROUP: Final = "admissionregistration.k8s.io"
_POLICIES: Final = Resource(
    _GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False
)
_BINDINGS: Final = Resource(
    _GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False
)
_CODES: Final = {
    "Invalid": 422,
    "Forbidden": 403,
    "RequestEntityTooLarge": 413,
}
_TRUE: Final = "object.status.conditions.exists(c, c.type == '{}' && c.status == 'True')"


@dataclass(frozen=True)
class Refusal:
    """What a policy refuses: requests about one resource for which `when` holds, written in CEL."""

    group: str
    version: str
    resource: str
    operation: str
    when: str


_REFUSALS: Final = {
    "deleted pod": Refusal("", "v1", "pods", "DELETE", "true"),
    "marked pod": Refusal(
        *("", "v1", "pods/status", "UPDATE"),
        f"has(object.status.conditions) && {_TRUE.format('DisruptionTarget')}",
    ),
    "suspended job": Refusal(
        "batch", "v1", "jobs", "UPDATE", "has(object.spec.suspend) && object.spec.suspend"
    ),
    "evicted workload": Refusal(
        *("kueue.x-k8s.io", "v1beta2", "workloads/status", "UPDATE"),
        f"has(object.status.conditions) && {_TRUE.format('Evicted')}",
    ),
    "deleted job": Refusal("batch", "v1", "jobs", "DELETE", "true"),
    "marked gpuworkload": Refusal(
        *("kaiwo.silogen.ai", "v1alpha1", "gpuworkloads/status", "UPDATE"),
        "has(object.status.phase) && object.status.phase == 'Preempting'",
    ),
}
#: What is played by each plane.
_SCHEDULING: Final = ("deleted pod", "marked pod")
_QUOTA: Final = ("suspended job", "evicted workload")
_IDLE: Final = ("deleted job", "marked gpuworkload")
_BY_REASON: Final = {"Forbidden": 0, "RequestEntityTooLarge": 1}


@dataclass(frozen=True)
class Story:
    """One refusal with one reason; `team`: whose queue is used by the quota plane."""

    refusal: str
    reason: str
    team: str

    @property
    def name(self) -> str:
        return f"{self.refusal.replace(' ', '-')}-{self.reason.lower()}"


def _stories() -> list[Story]:
    """The planes' own refusals, with all reasons in the scheduling plane, and two elsewhere."""
    found = [Story(refusal, reason, "a") for refusal in _SCHEDULING for reason in _CODES]
    for number, refusal in enumerate((*_QUOTA, *_IDLE)):
        for reason, at in _BY_REASON.items():
            team = f"t{2 * number + at}" if refusal in _QUOTA else "a"
            found.append(Story(refusal, reason, team))
    return found


_STORIES: Final = _stories()
_QUOTAS: Final = {"a": 0, **{story.team: 8 for story in _STORIES if story.team != "a"}}


@pytest.mark.slow
async def test_whose_eviction_a_policy_refuses_is_passed_by_in_each_plane(
    audited: ControlPlane, tmp_path: Path
) -> None:
    nodes = tuple(_node(story.name) for story in _STORIES)
    async with decided(audited, tmp_path, (*nodes, _node("gang")), _QUOTAS) as (stage, client, _):
        await store(client, _priority("lower", 50))
        await _refuse(client)
        await _fill(stage, client)
        for story in _STORIES:
            await create(client, stage, _demand(story))
        await create(client, stage, _pod("wanted-gang", "gang", "high"))
        names = [f"wanted-{story.name}" for story in _STORIES]
        await until("all preemptors run", lambda: runs(client, *names, "wanted-gang"), 400.0)
        await asyncio.sleep(5)
        kept = [f"kept-{story.name}" for story in _STORIES]
        # A Workload whose job cannot be suspended is evicted, and its job runs on.
        assert await runs(client, *kept)
    gone = {each.name for each in evictions(tmp_path)}
    assert {name for name in gone if name.startswith("kept")} <= {"kept-gang-1"}
    assert len([name for name in gone if name.startswith("beside")]) == len(_STORIES) + 1
    refused = _refused(tmp_path)
    for story in _STORIES:
        assert _CODES[story.reason] in refused[story.name], (story, refused[story.name])


def _node(story: str) -> NodeSpec:
    return node(f"n-{story}", labels={"story": story})


def _priority(name: str, value: int) -> dict[str, Any]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value}


def _on(story: str, unit: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for each in unit:
        if each["kind"] != "PodGroup":
            spec = each["spec"]
            spec = spec["template"]["spec"] if "template" in spec else spec
            spec["nodeSelector"] = {"story": story}
    return unit


def _pod(name: str, story: str, priority: str) -> list[dict[str, Any]]:
    (_, pod) = gang(name, pods=1, priority=priority, opted=False)
    pod["metadata"]["name"] = name
    del pod["spec"]["schedulingGroup"]
    return _on(story, [pod])


def _work(name: str, story: Story, priority: str) -> list[dict[str, Any]]:
    if story.refusal in _SCHEDULING:
        return _pod(name, story.name, priority)
    queued = story.refusal in _QUOTA
    chosen = priority if queued else ""
    made = job(name, story.team, queued=queued, opted=not queued, priority=chosen)
    return _on(story.name, made)


def _demand(story: Story) -> list[dict[str, Any]]:
    return _work(f"wanted-{story.name}", story, "high")


async def _fill(stage: Stage, client: Client) -> None:
    """Fill all nodes; of the two on each, the one that is to be chosen first comes first."""
    members = _on("gang", gang("kept-gang", priority="lower", gpus=2, opted=False))
    await create(client, stage, members)
    await create(client, stage, _pod("beside-gang", "gang", "low"))
    names = ["kept-gang", "beside-gang"]
    for prefix, priority in (("kept", "lower"), ("beside", "low")):
        for story in _STORIES:
            name = f"{prefix}-{story.name}"
            made = _work(name, story, priority)
            await create(client, stage, made)
            if story.refusal in _IDLE:
                use(stage, made, 0.0)
            names.append(name)
        await asyncio.sleep(3)
    await until("all run", lambda: runs(client, *names), 300.0)


async def _refuse(client: Client) -> None:
    """Create a policy for each refusal and reason, and wait until they are in force."""
    for refusal in _REFUSALS:
        for reason in _CODES:
            await _policy(client, Story(refusal, reason, ""))
    # Policies are in force within a second or two; that each refused is counted in the end.
    await asyncio.sleep(10)


async def _policy(client: Client, story: Story) -> None:
    what, name = _REFUSALS[story.refusal], story.name
    rule = {
        "apiGroups": [what.group],
        "apiVersions": [what.version],
        "operations": [what.operation],
        "resources": [what.resource],
    }
    about = f"request.name.contains('kept-{name}')"
    if story.refusal == "deleted pod" and story.reason == "Invalid":
        about = f"({about} || request.name == 'kept-gang-0')"
    operator = f"request.userInfo.username == '{OPERATOR_USER}'"
    text = 'User "u" cannot delete resource "pods" in API group "" now'
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [
                {
                    "expression": f"!({operator} && {about} && {what.when})",
                    "message": text,
                    "reason": story.reason,
                }
            ],
        },
    }
    await client.create(_POLICIES, policy, dict)
    binding = {"policyName": name, "validationActions": ["Deny"]}
    await client.create(_BINDINGS, {"metadata": {"name": name}, "spec": binding}, dict)


def _refused(folder: Path) -> dict[str, set[int]]:
    """Return with which codes the operator was refused, by story."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for line in (folder / "audit.log").read_bytes().splitlines():
        event = json.loads(line)
        name = (event.get("objectRef") or {}).get("name", "")
        code = (event.get("responseStatus") or {}).get("code", 0)
        if event["user"]["username"] == OPERATOR_USER and code >= 400 and code != 404:
            for story in _STORIES:
                if f"kept-{story.name}" in name:
                    found[story.name].add(code)
    return found
