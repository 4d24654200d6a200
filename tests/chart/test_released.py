"""What the release workflow makes of the chart: each of its commands that needs no registry."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import yaml

from tests.chart.go_tools import HELM, tool
from tests.chart.helm import ROOT, run_helm

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def test_a_released_chart_names_the_images_that_were_pushed_with_it(tmp_path: Path) -> None:
    """Each command of the workflow that needs no registry, and what a first `helm install` gets."""
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    (script,) = [each["run"] for each in jobs["chart"]["steps"] if "helm push" in str(each)]
    lines = [line for line in script.splitlines() if not re.search(r"login|push|cosign|sed", line)]
    assert len(lines) == 3
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "helm").symlink_to(tool(HELM))
    for folder in (".ci", "charts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for left in (".DS_Store", "values.yaml.orig", "templates/.rbac.yaml.swp", "reprieve-0.1.tgz"):
        (tmp_path / "charts" / "reprieve" / left).write_text("left by another program")
    environment = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "REGISTRY": "registry.example:5000/team",
        "GITHUB_REF_NAME": "v1.2.3-rc1",
    }
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
    )
    package = tmp_path / "reprieve-1.2.3-rc1.tgz"
    with tarfile.open(package) as packed:
        members = {each.name.partition("/")[2] for each in packed}
    files = [path for path in (ROOT / "charts" / "reprieve").rglob("*") if path.is_file()]
    assert members == {str(path.relative_to(ROOT / "charts" / "reprieve")) for path in files}
    rendered = run_helm(
        *("template", "r", str(package), "--set", "web.enabled=true"),
        *("--set", "controllers={idle,scheduling,quota}", "--set", "replicas=2"),
    )
    images = set(re.findall(r"^ +image: (.*)$", rendered, re.MULTILINE))
    pushed = [each["with"]["tags"] for each in jobs["image"]["steps"] if "tags" in str(each)]
    assert pushed[0] == "${{ vars.REGISTRY }}/reprieve:${{ github.ref_name }}"
    assert images == {'"registry.example:5000/team/reprieve:v1.2.3-rc1"'}
    readme = run_helm("show", "readme", str(package))
    assert " oci://registry.example:5000/team/charts/reprieve " in readme
    assert "REGISTRY" not in readme
