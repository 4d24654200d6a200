"""What a former process left open is taken over before anything is decided, whatever it takes."""

from __future__ import annotations

from reprieve.scenarios.embedded import OPERATOR_NAMESPACE
from tests.idle.site import Object, Site, container, job


def _left_open(*parts: str) -> Object:
    """Return a record of which nothing but the head is left."""
    return {
        "apiVersion": "reprieve.dev/v1alpha1",
        "kind": "Preemption",
        "metadata": {"name": "idle-former-1", "namespace": OPERATOR_NAMESPACE},
        "spec": {
            "plane": "idle",
            "planId": "former",
            "attempt": 1,
            "proof": {"level": "Sum", "need": {}, "freed": {}},
            "victims": [],
            "parts": list(parts),
            "victimCount": 5,
            "decidedAt": "2026-03-04T10:00:00Z",
        },
    }


async def _serves(site: Site) -> None:
    for name in ("idle-0", "idle-1"):
        await site.create(job(name, container(gpu=4), enabled="true"))
        await site.until_phase(f"Job/{name}", "Idle")
    site.busy("Job/demand", 80)
    await site.create(job("demand", container(gpu=8), enabled="true"))
    await site.until_phase("Job/demand", "Active")

    async def phases() -> bool:
        found = {each["metadata"]["name"]: each["status"]["phase"] for each in await site.records()}
        return found.pop("idle-former-1") == "Abandoned" and set(found.values()) == {"Completed"}

    await site.until(phases)


async def test_a_takeover_that_is_refused_is_tried_again_and_ends_no_process(site: Site) -> None:
    rights = site.embedded.stage.rights
    assert rights is not None
    await site.create(_left_open())
    await rights.deny("patch", "reprieve.dev", "preemptions/status")
    operator = await site.run()
    await site.until(lambda: len(operator.said("cannot adopt open intents")) > 1)
    await rights.allow("patch", "reprieve.dev", "preemptions/status")
    await _serves(site)


async def test_a_record_that_lost_its_parts_is_closed_and_stops_nobody(site: Site) -> None:
    await site.create(_left_open("idle-former-1-a", "idle-former-1-b"))
    await site.run()
    await _serves(site)
