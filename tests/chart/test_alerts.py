"""The alert rules: about metrics that there are, each with a runbook, rendered for what runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.chart.helm import CHART, ROOT, RenderingFailed, render
from tests.chart.rules import Rule, rules
from tests.chart.served import faults_of, served

RUNBOOKS: Final = ROOT / "docs" / "runbooks"
_SECTIONS: Final = ["Meaning", "Impact", "Diagnosis", "Mitigation", "False alarms"]


def test_every_rule_is_about_metrics_and_labels_that_are_served() -> None:
    known = served()
    for rule in rules():
        assert faults_of(rule.expression, known) == [], rule.alert


def test_every_alert_has_a_runbook_with_all_its_parts_and_every_runbook_an_alert() -> None:
    names = [rule.alert for rule in rules()]
    assert len(set(names)) == len(names) >= 16
    assert {path.stem for path in RUNBOOKS.glob("Reprieve*.md")} == set(names)
    index = (RUNBOOKS / "README.md").read_text()
    for name in names:
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == _SECTIONS
        assert all(part.strip() for part in re.split(r"^## .+$", text, flags=re.MULTILINE))
        assert f"[{name}]({name}.md)" in index


def test_every_rule_says_how_grave_it_is_and_what_is_the_matter() -> None:
    for rule in rules():
        assert rule.severity in ("critical", "warning", "info"), rule.alert
        assert set(rule.annotations) == {"summary", "description"}, rule.alert
        assert not rule.annotations["summary"].endswith("."), rule.alert
        assert rule.annotations["description"].endswith("."), rule.alert


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("Reprieve*.md")), ids=lambda path: path.stem)
def test_the_commands_of_a_runbook_are_commands(path: Path) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", path.read_text(), re.DOTALL)
    for line in block.splitlines():
        program, verb, *rest = shlex.split(line)
        assert program in ("kubectl", "reprieve"), line
        if program == "kubectl":
            assert verb in ("get", "describe", "logs", "top", "auth"), f"{line}: reads, and no more"
            for flag in (each for each in rest if each.startswith("--")):
                assert flag.partition("=")[0] in _FLAGS, f"{line}: {flag}"
        else:
            assert verb == "explain", line


_FLAGS: Final = {
    "--all-namespaces",
    "--as",
    "--field-selector",
    "--prefix",
    "--raw",
    "--since",
    "--sort-by",
    "--tail",
}


def _groups(rendered: Any) -> list[str]:
    return [group["name"] for group in rendered.one("PrometheusRule")["spec"]["groups"]]


def test_rules_are_off_by_default_and_come_for_the_planes_that_run(tmp_path: Path) -> None:
    assert render(tmp_path).all("PrometheusRule") == []
    wanted = {"prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}}}
    both = render(tmp_path, {**wanted, "controllers": ["scheduling", "quota"]})
    assert _groups(both) == ["reprieve-operator", "reprieve-scheduling", "reprieve-quota"]
    assert both.one("PrometheusRule")["metadata"]["labels"]["release"] == "prometheus"
    # The idle plane is named by default and does not run.
    assert _groups(render(tmp_path, wanted)) == ["reprieve-operator"]


def test_rendered_rules_are_those_of_the_files_with_runbooks_and_the_threshold(
    tmp_path: Path,
) -> None:
    values = {
        "enabled": True,
        "runbooks": "https://docs.example/runbooks/",
        "lostDevices": 2.5,
    }
    enabled = {"enabled": True, "metricsEndpoint": "http://exporter:5000/metrics"}
    rendered = render(
        tmp_path,
        {
            "prometheusRule": values,
            "gpuPreemption": enabled,
            "controllers": ["idle", "scheduling", "quota"],
        },
    )
    found = {
        rule["alert"]: rule
        for group in rendered.one("PrometheusRule")["spec"]["groups"]
        for rule in group["rules"]
    }
    assert list(found) == [rule.alert for rule in rules(2.5)]
    for rule in rules(2.5):
        one = found[rule.alert]
        url = f"https://docs.example/runbooks/{rule.alert}.md"
        assert one["annotations"] == {**rule.annotations, "runbook_url": url}
        assert one["expr"] == rule.expression


@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_monitors_scrape_what_the_chart_serves(tmp_path: Path, kind: str) -> None:
    assert render(tmp_path).all(kind) == []
    key = kind[0].lower() + kind[1:]
    plain = render(tmp_path, {key: {"enabled": True, "interval": "15s"}})
    monitor = plain.one(kind)["spec"]
    endpoints = "endpoints" if kind == "ServiceMonitor" else "podMetricsEndpoints"
    assert monitor[endpoints] == [{"port": "http", "path": "/metrics", "interval": "15s"}]
    labels = plain.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    secret = {"name": "scraper", "key": "token"}
    closed = render(
        tmp_path,
        {
            "metrics": {"authentication": True},
            key: {"enabled": True, "credentials": secret},
        },
    )
    (endpoint,) = closed.one(kind)["spec"][endpoints]
    assert endpoint["scheme"] == "https"
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": secret}
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}
    with pytest.raises(RenderingFailed, match="credentials"):
        render(tmp_path, {"metrics": {"authentication": True}, key: {"enabled": True}})


def test_a_service_monitor_without_a_service_is_refused(tmp_path: Path) -> None:
    values = {"metrics": {"service": {"enabled": False}}, "serviceMonitor": {"enabled": True}}
    with pytest.raises(RenderingFailed, match="no Service to scrape"):
        render(tmp_path, values)


def test_the_files_of_rules_are_rule_files() -> None:
    for path in sorted((CHART / "files" / "alerts").glob("*.yaml")):
        (group,) = yaml.safe_load(path.read_text())["groups"]
        assert group["name"] == f"reprieve-{path.stem}"
        assert all(isinstance(rule, dict) for rule in group["rules"])
    assert all(isinstance(rule, Rule) for rule in rules())
