"""What catalogues of charts read of this one, and how it is rendered without a cluster."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

from reprieve.api.crds import NAMES
from tests.chart.helm import CHART, RenderingFailed, render, run_helm

FOREIGN = ("gpuworkloads.kaiwo.silogen.ai", "kaiwoconfigs.config.kaiwo.silogen.ai")


def chart() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return found


def test_the_chart_says_who_makes_it_and_shows_itself() -> None:
    found = chart()
    assert found["home"] and found["sources"] and found["maintainers"]
    kind, _, content = found["icon"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert ElementTree.fromstring(base64.b64decode(content)).tag.endswith("svg")
    assert "icon" not in run_helm("lint", str(CHART))


def test_its_own_kinds_are_described_for_catalogues() -> None:
    listed = yaml.safe_load(chart()["annotations"]["artifacthub.io/crds"])
    assert {each["name"] for each in listed} == set(NAMES) - set(FOREIGN)
    for each in listed:
        definition = yaml.safe_load((CHART / "files" / "crds" / f"{each['name']}.yaml").read_text())
        served = [one["name"] for one in definition["spec"]["versions"] if one["served"]]
        assert each["version"] in served and each["kind"] == definition["spec"]["names"]["kind"]


def test_older_servers_are_refused_by_name() -> None:
    def rendered(version: str) -> str:
        return run_helm("template", "r", str(CHART), "--kube-version", version)

    for version in ("1.30.0", "1.36.1", "1.37.1-gke.100"):
        assert rendered(version)
    try:
        rendered("1.29.9")
    except RenderingFailed as refusal:
        assert "incompatible with Kubernetes v1.29.9" in str(refusal)
    else:
        raise AssertionError("1.29 is taken")


def test_every_value_that_the_readme_names_is_one() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = re.findall(r"^\| (`.*?) \|", (CHART / "README.md").read_text(), re.MULTILINE)
    assert len(rows) > 5
    for row in rows:
        first, *others = re.findall(r"`([^`]+)`", row)
        names = [
            first,
            *(first.split(".")[0] + each if each[0] == "." else each for each in others),
        ]
        for name in names:
            found: Any = values
            for part in name.split("."):
                found = found[part]


def test_gitops_renders_the_same_objects_twice_without_a_cluster(tmp_path: Path) -> None:
    """Argo CD and Flux render with `helm template`: no cluster is asked, and nothing is random."""
    values = {
        "controllers": ["idle", "scheduling", "quota"],
        "gpuPreemption": {"enabled": True, "metricsEndpoint": "http://exporter:5000/metrics"},
    }
    first, second = render(tmp_path, values), render(tmp_path, values)
    assert first.objects == second.objects
    kinds = {one["metadata"]["name"] for one in first.all("CustomResourceDefinition")}
    assert set(NAMES) < kinds
    for one in first.all("CustomResourceDefinition"):
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert {one["kind"] for one in first.objects} >= {
        "Deployment",
        "ClusterRole",
        "MutatingWebhookConfiguration",
    }
