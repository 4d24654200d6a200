"""The chart's NetworkPolicy allows what the operator is seen to do, and nothing besides."""

from __future__ import annotations

import dataclasses
import ipaddress
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from reprieve.scenarios.catalogue import find
from reprieve.scenarios.embedded import embedded_stage
from reprieve.scenarios.operator import OperatorProcesses
from reprieve.scenarios.result import Outcome
from reprieve.scenarios.runner import play_scenario
from tests.chart.connections import Address, Connections, watching
from tests.chart.helm import render

LOOPBACK = "127.0.0.1/32"
PLANES = "idle,scheduling,quota"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_the_policy_covers_exactly_the_connections_of_all_planes(tmp_path: Path) -> None:
    seen, api, source = await connections_of("quota", tmp_path)
    assert seen.outgoing == {api, source}
    spec = policy(tmp_path, api, source)
    rules = [rule for rule in spec["egress"] if not is_for_names(rule)]
    assert sorted(use(rules, each) for each in seen.outgoing) == list(range(len(rules)))
    # Metrics and webhooks, of which the API server calls the webhooks here.
    assert len(seen.listening) == len(spec["ingress"]) == 2
    assert len(seen.incoming) == 1 and seen.incoming < seen.listening


async def connections_of(name: str, folder: Path) -> tuple[Connections, Address, Address]:
    """Play a scenario with all planes; return what was seen, and where API and exporter are."""
    scenario = find(name)
    config = {"quota": {"webhooks": {"url": "https://127.0.0.1:0"}}, **scenario.operator_config}
    scenario = msgspec.structs.replace(scenario, operator_config=config)
    operators: list[OperatorProcesses] = []
    async with embedded_stage(
        scenario.nodes,
        folder,
        operator_arguments=("--controllers", PLANES, "--scheduler-name", "default-scheduler"),
        scheduler=False,
        kueue=True,
    ) as embedded:

        def launch(environment: Mapping[str, str], replicas: int) -> OperatorProcesses:
            operators.append(embedded.stage.launch(environment, replicas))
            return operators[-1]

        cluster = yaml.safe_load(embedded.kubeconfig.read_text())["clusters"][0]["cluster"]
        async with watching(lambda: [pid for each in operators for pid in each.pids]) as seen:
            stage = dataclasses.replace(embedded.stage, launch=launch)
            result = await play_scenario(scenario, stage)
        assert result.outcome is Outcome.PASSED, result.text()
        return seen, end_of(cluster["server"]), end_of(embedded.metrics_endpoint)


def end_of(url: str) -> Address:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    return parts.hostname, parts.port


def policy(folder: Path, api: Address, source: Address) -> dict[str, Any]:
    """Return what the chart renders for all planes where these are."""
    values = {
        "controllers": PLANES.split(","),
        "gpuPreemption": {"enabled": True, "metricsEndpoint": "http://127.0.0.1/metrics"},
        "networkPolicy": {
            "enabled": True,
            "metrics": {"cidrs": [LOOPBACK]},
            "webhooks": {"cidrs": [LOOPBACK]},
            "egress": {
                "enabled": True,
                "apiServer": {"cidrs": [f"{api[0]}/32"], "ports": [api[1]]},
                "metricSources": {"cidrs": [f"{source[0]}/32"], "ports": [source[1]]},
            },
        },
    }
    spec: dict[str, Any] = render(folder, values).one("NetworkPolicy")["spec"]
    return spec


def is_for_names(rule: dict[str, Any]) -> bool:
    return {each["port"] for each in rule["ports"]} == {53}


def use(rules: list[dict[str, Any]], end: Address) -> int:
    """Return which rule allows a connection; -1 where none does."""
    host, port = ipaddress.ip_address(end[0]), end[1]
    for number, rule in enumerate(rules):
        networks = (ipaddress.ip_network(peer["ipBlock"]["cidr"]) for peer in rule["to"])
        ports = {each["port"] for each in rule["ports"]}
        if port in ports and any(host in network for network in networks):
            return number
    return -1
