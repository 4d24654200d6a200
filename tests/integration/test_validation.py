"""What our definitions refuse, and what a real API server adds to it."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.api.crds import all_crds
from reprieve.kube.errors import Forbidden, Invalid
from reprieve.kube.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DISRUPTIONS,
    GPU_WORKLOADS,
    HARM_BUDGETS,
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

    with pytest.raises(Invalid) as refusal:
        await site.operator_client.patch(
            PREEMPTIONS, OPERATOR_NAMESPACE, name, {"spec": {"attempt": 7}}, dict
        )

    assert "a decision is not changed after it was recorded" in refusal.value.message
    after = await site.find(PREEMPTIONS, name, OPERATOR_NAMESPACE)
    assert after["spec"] == record["spec"]


async def test_what_became_of_work_is_said_once_and_by_the_operator_alone(site: Site) -> None:
    site.reports("Job/told", 0)
    await site.create(job("told", 4, policy="Always", grace_period="1s"))
    operator = await site.operator()
    await site.in_phase("Job/told", "Preempted")

    async def told() -> Object | None:
        found = await site.all(DISRUPTIONS, NAMESPACE)
        return next((each for each in found if each["spec"]["subject"]["name"] == "told"), None)

    story = await site.until(told, "its tenant is told")
    await operator.stop()
    spec = story["spec"]
    assert (spec["subject"]["kind"], spec["preemptor"], spec["times"]) == ("Job", "nobody", 1)
    assert spec["rule"] == "its devices were idle for longer than its policy allows"
    name = story["metadata"]["name"]
    # Of a real API server its policy says no first.
    with pytest.raises((Invalid, Forbidden)) as refusal:
        await site.client.patch(DISRUPTIONS, NAMESPACE, name, {"spec": {"times": 7}}, dict)
    message = refusal.value.message
    assert "what has happened does not change" in message or "by the operator alone" in message
    after = await site.find(DISRUPTIONS, name)
    assert after["spec"] == spec


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


@pytest.mark.parametrize("site", ["real"], indirect=True)
async def test_the_charts_policy_keeps_others_from_forging_a_decision(site: Site) -> None:
    forged = {
        "metadata": {"name": "idle-always-1", "namespace": OPERATOR_NAMESPACE},
        "spec": {
            "plane": "idle",
            "planId": "0000000000000000",
            "attempt": 1,
            "proof": {"level": "Sum"},
            "victims": [],
            "decidedAt": "2026-01-01T00:00:00Z",
        },
    }

    async def refused() -> Forbidden | None:
        # A policy is in force some time after it was stored.
        try:
            await site.client.create(PREEMPTIONS, forged, dict)
        except Forbidden as refusal:
            return refusal
        await site.client.delete(PREEMPTIONS, OPERATOR_NAMESPACE, "idle-always-1")
        return None

    refusal = await site.until(refused, "an administrator is refused")
    assert "written by the operator alone" in refusal.message
    written = await site.operator_client.create(PREEMPTIONS, forged, dict)
    assert written["metadata"]["name"] == "idle-always-1"
    elsewhere = {**forged, "metadata": {"name": "idle-always-1", "namespace": NAMESPACE}}
    assert (await site.client.create(PREEMPTIONS, elsewhere, dict))["kind"] == "Preemption"


async def test_a_harm_budget_gets_its_defaults_and_odd_ones_are_refused(site: Site) -> None:
    def budget(name: str, **spec: object) -> Object:
        return {
            "apiVersion": HARM_BUDGETS.api_version,
            "kind": "HarmBudget",
            "metadata": {"name": name},
            "spec": {"limits": {"displacements": 2}, **spec},
        }

    made = await site.client.create(HARM_BUDGETS, budget("day"), dict)
    assert "window" not in made["spec"]
    assert made["spec"]["exempt"] == {"nominalReclaimAfter": "1h"}
    await site.client.create(
        HARM_BUDGETS, budget("office", schedule="0 8 * * MON-FRI", duration="10h"), dict
    )
    status = {"accounts": 1, "used": [{"of": "team", "displacements": 1}]}
    stored = await site.client.patch_status(HARM_BUDGETS, "", "day", status, dict)
    assert stored["status"]["used"] == status["used"]
    refused: tuple[dict[str, Any], ...] = (
        {"window": "5m"},
        {"window": "721h"},
        {"window": "soon"},
        {"schedule": "0 8 * * 1-5"},
        {"duration": "10h"},
        {"schedule": "0 8 * * 1-5", "duration": "10h", "window": "24h"},
        {"schedule": "0 8 * * 1-5", "duration": "5m"},
        {"schedule": "@daily", "duration": "10h"},
        {"schedule": "0 0 8 * * 1-5", "duration": "10h"},
        {"limits": {}},
        {"scope": "Caused", "per": "Work"},
    )
    for odd in refused:
        with pytest.raises(Invalid):
            await site.client.create(HARM_BUDGETS, budget("odd", **odd), dict)
