"""A real API server takes what the chart renders of every two choices of its values.

Field by field; kinds of the Prometheus Operator and of cert-manager by their own definitions.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from tests.chart.go_tools import HELM, ToolMissing, definitions, tool
from tests.chart.helm import ROOT, render_text
from tests.chart.pairwise import combinations
from tests.integration.control_plane import ADMINISTRATOR, ControlPlane

_NAMESPACE = "ops"


@pytest.mark.slow
async def test_every_combination_is_accepted_with_all_its_fields(
    real_cluster: ControlPlane, tmp_path: Path, kubectl: Path
) -> None:
    try:
        tool(HELM)
        others = definitions()
    except ToolMissing as missing:
        pytest.skip(str(missing))
    kubeconfig = tmp_path / "kubeconfig"
    real_cluster.write_kubeconfig(kubeconfig, ADMINISTRATOR)

    async def run(*arguments: str, given: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            *(str(kubectl), "--kubeconfig", str(kubeconfig), *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate(given.encode())
        assert process.returncode == 0, said.decode()
        return said.decode()

    await run("create", "namespace", _NAMESPACE)
    ours = sorted((ROOT / "src" / "reprieve" / "api" / "crds").glob("*.yaml"))
    for file in (*others, *ours):
        definition = yaml.safe_load(file.read_text("utf-8"))
        # Of some they are templates of their own chart.
        definition["metadata"].pop("labels", None)
        # Another test of this control plane may have brought it.
        given = yaml.safe_dump(definition)
        await run("apply", "--server-side", "--force-conflicts", "-f", "-", given=given)
    await run("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    kinds: set[str] = set()
    for values in combinations():
        text = render_text(tmp_path, values)
        said = await run(
            *("apply", "--server-side", "--dry-run=server", "--force-conflicts"),
            *("--validate=strict", "-f", "-"),
            given=text,
        )
        kinds |= {line.partition("/")[0] for line in said.splitlines() if "dry run" in line}
    assert {
        "certificate.cert-manager.io",
        "flowschema.flowcontrol.apiserver.k8s.io",
        "ingress.networking.k8s.io",
        "networkpolicy.networking.k8s.io",
        "podmonitor.monitoring.coreos.com",
        "prometheusrule.monitoring.coreos.com",
        "servicemonitor.monitoring.coreos.com",
        "validatingadmissionpolicy.admissionregistration.k8s.io",
    } <= kinds
