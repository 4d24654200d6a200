"""Every two choices of the chart's values go together: rendered, understood, accepted."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelocal.cluster import EmbeddedCluster
from kubelocal.server.types.schema import FieldValidation
from kubelocal.server.writing.options import WriteOptions
from reprieve.api.crds import NAMES, load
from reprieve.cli.run import operator_options, run
from reprieve.planes.common.process_settings import OperatorSettings, operator_settings
from tests.chart.helm import Rendered, render
from tests.chart.pairwise import FACTORS, combinations, covering

#: Which an API server knows by definitions of others, or the embedded one not at all.
ELSEWHERE = {
    "Certificate",
    "FlowSchema",
    "Ingress",
    "Issuer",
    "NetworkPolicy",
    "PodMonitor",
    "PrometheusRule",
    "ServiceMonitor",
}


def test_every_two_choices_meet_in_few_rows() -> None:
    sizes = [len(choices) for choices in FACTORS.values()]
    rows = covering(sizes)
    for one, other in itertools.combinations(range(len(sizes)), 2):
        met = {(row[one], row[other]) for row in rows}
        assert len(met) == sizes[one] * sizes[other]
    assert rows == covering(sizes) and len(rows) < 45


@pytest.mark.parametrize("number", range(len(combinations())))
async def test_a_combination_renders_and_is_understood(number: int, tmp_path: Path) -> None:
    values = combinations()[number]
    rendered = render(tmp_path, values)
    names = Counter(
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
        for one in rendered.objects
    )
    assert set(names.values()) == {1}, "one object of a name"
    runs = operator_of(rendered)["spec"]["replicas"] > 0
    if runs and "configurationMap" not in values.get("quota", {}):
        settings = settings_of(rendered, tmp_path)
        planes = values.get("controllers", ["idle"])
        assert (settings.quota is not None) == ("quota" in planes)
        assert (settings.scheduling is not None) == ("scheduling" in planes)
        assert settings.start.enabled == values.get("gpuPreemption", {}).get("enabled", False)
    await are_taken(rendered)


def operator_of(rendered: Rendered) -> dict[str, Any]:
    """Return the Deployment that runs the operator; the web page has one of its own."""
    (found,) = (
        one
        for one in rendered.all("Deployment")
        if one["spec"]["template"]["spec"]["containers"][0]["args"][0] == "run"
    )
    return found


def settings_of(rendered: Rendered, folder: Path) -> OperatorSettings:
    """Return what the operator makes of its arguments, variables and mounted configuration."""
    config = folder / "config.yaml"
    (text,) = (
        one["data"]["config.yaml"]
        for one in rendered.all("ConfigMap")
        if "config.yaml" in one["data"]
    )
    config.write_text(text)
    (container,) = operator_of(rendered)["spec"]["template"]["spec"]["containers"]
    verb, *arguments = container["args"]
    assert verb == "run"
    arguments = [str(config) if each.startswith("/etc/reprieve/") else each for each in arguments]
    given = run.make_context("run", arguments).params
    variables = {
        each["name"]: each["value"] for each in container.get("env", []) if "value" in each
    }
    return operator_settings(operator_options(variables, **given))


async def are_taken(rendered: Rendered) -> None:
    """Have the embedded API server check all objects that it knows, field by field."""
    async with EmbeddedCluster() as cluster:
        await create(
            cluster, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}}
        )
        for name in NAMES:
            await create(cluster, load(name))
        seen = 0
        for one in rendered.objects:
            if one["kind"] in ELSEWHERE or one["metadata"]["name"] in NAMES:
                continue
            seen += 1
            await create(cluster, one, dry_run=True)
        assert seen > 3


async def create(cluster: EmbeddedCluster, one: dict[str, Any], dry_run: bool = False) -> None:
    kind = cluster.registry.by_kind(one["apiVersion"], one["kind"])
    assert kind is not None, yaml.safe_dump(one)[:200]
    options = WriteOptions(dry_run=dry_run, validation=FieldValidation.STRICT)
    await cluster.api.create(kind, one["metadata"].get("namespace", ""), one, options)
