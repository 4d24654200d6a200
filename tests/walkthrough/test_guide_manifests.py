"""The guide's manifests as they are, where they lie beside the project: accepted and tracked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.walkthrough.conftest import Site

MANIFESTS = Path(__file__).parents[2].parent / "shared" / "guides" / "manifests"


@pytest.fixture
def manifests() -> Path:
    if not (MANIFESTS / "idle-workloads.yaml").is_file():
        pytest.skip("the guide's manifests are not here")
    return MANIFESTS


async def test_every_workload_of_the_guide_is_tracked_with_its_own_settings(
    manifests: Path, site: Site
) -> None:
    # The operator makes one when it starts; kubectl would meet it between looking and creating.
    await site.says("wait", "kaiwoconfig/kaiwo", "--for=create", "--timeout=60s")
    for file in ("idle-namespace.yaml", "idle-kaiwoconfig.yaml"):
        await site.says("apply", "-f", str(manifests / file))
    applied = await site.says(
        "apply", "-n", "ml-team", "-f", str(manifests / "idle-workloads.yaml")
    )
    assert applied == (
        "job.batch/my-training-job created\n"
        "job.batch/batch-inference created\n"
        "deployment.apps/dev-notebook created\n"
    )

    fields = "{.spec.gracePeriod} {.spec.preemptionPolicy} {.spec.utilizationThreshold}"
    settings = {}
    for kind, name in (
        ("job", "my-training-job"),
        ("job", "batch-inference"),
        ("deployment", "dev-notebook"),
    ):
        workload = await site.gpuworkload_of(kind, name, "ml-team")
        await site.until("create", workload, "ml-team")
        settings[name] = await site.says(
            "get", "gpuworkload", workload, "-n", "ml-team", "-o", f"jsonpath={fields}"
        )

    assert settings == {
        "my-training-job": "5m0s Always ",
        "batch-inference": "10m0s OnPressure ",
        "dev-notebook": "5m0s Always 10",
    }
