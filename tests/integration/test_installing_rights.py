"""A user with the rights of one namespace installs what an administrator has prepared.

The commands are those of `docs/operations/rights.md`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.chart.go_tools import HELM, ToolMissing, tool
from tests.chart.helm import CHART, ROOT
from tests.integration.control_plane import ADMINISTRATOR, Binaries, ControlPlane, control_plane

_USER: Final = "namespace-owner"
_RIGHTS: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: owner, namespace: reprieve}
rules:
- apiGroups: ["", apps, batch, policy, coordination.k8s.io, rbac.authorization.k8s.io]
  resources: ["*"]
  verbs: ["*"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: owner, namespace: reprieve}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: owner}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: namespace-owner}
"""
_VALUES: Final = {
    "controllers": ["idle", "scheduling"],
    "gpuPreemption": {"enabled": True, "metricsEndpoint": "http://exporter.example:5000/metrics"},
}


@pytest.fixture
def plane(binaries: Binaries, tmp_path: Path) -> Iterator[ControlPlane]:
    users = {ADMINISTRATOR: "system:masters", _USER: "owners"}
    with control_plane(binaries, tmp_path, users) as running:
        yield running


def commands() -> list[str]:
    page = (ROOT / "docs" / "operations" / "rights.md").read_text(encoding="utf-8")
    section = page.split("## Installing with the rights of one namespace")[1]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


async def test_an_administrator_prepares_and_a_user_of_the_namespace_installs(
    plane: ControlPlane, tmp_path: Path, kubectl: Path
) -> None:
    try:
        programs = {"helm": tool(HELM), "kubectl": kubectl}
    except ToolMissing as missing:
        pytest.skip(str(missing))
    (tmp_path / "bin").mkdir()
    for name, program in programs.items():
        (tmp_path / "bin" / name).symlink_to(program)
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "reprieve").symlink_to(CHART)
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(_VALUES))

    async def run(user: str, command: str) -> tuple[int, str]:
        kubeconfig = tmp_path / f"{user}.kubeconfig"
        plane.write_kubeconfig(kubeconfig, user)
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        process = await asyncio.create_subprocess_exec(
            *("bash", "-o", "pipefail", "-c", command),
            cwd=tmp_path,
            env={"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, printed.decode()

    (tmp_path / "rights.yaml").write_text(_RIGHTS)
    code, said = await run(
        ADMINISTRATOR, "kubectl create namespace reprieve && kubectl apply -f rights.yaml"
    )
    assert code == 0, said
    prepare, install = commands()
    # Without the preparation Helm names what is refused, and installs nothing.
    code, said = await run(_USER, install.split("--set")[0].rstrip(" \\\n"))
    assert code == 1 and 'cannot get resource "customresourcedefinitions"' in said, said
    version = f"{plane.binaries.release[0]}.{plane.binaries.release[1]}.0"
    code, said = await run(
        ADMINISTRATOR, prepare.replace("helm template ", f"helm template --kube-version {version} ")
    )
    assert code == 0, said
    code, said = await run(_USER, install)
    assert code == 0 and "STATUS: deployed" in said, said
    # The operator of that release has the rights of its planes.
    account = "system:serviceaccount:reprieve:reprieve"
    for verb, resource, namespace in (
        ("delete", "pods", "default"),
        ("create", "pods --subresource=binding", "default"),
        ("create", "preemptions.reprieve.dev", "reprieve"),
        ("update", "leases.coordination.k8s.io/reprieve", "reprieve"),
    ):
        code, said = await run(
            ADMINISTRATOR, f"kubectl auth can-i {verb} {resource} -n {namespace} --as {account}"
        )
        assert (code, said) == (0, "yes\n"), (verb, resource)
