"""The dashboards of the chart are those of their builders, and ask for what is served."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chart.dashboards import DASHBOARDS, FOLDER, Dashboard, text
from tests.chart.helm import render
from tests.chart.served import faults_of, served

EACH = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)


def test_there_is_a_file_for_each_dashboard_and_no_other() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {each.name for each in DASHBOARDS}


@EACH
def test_the_file_is_what_the_builder_makes(dashboard: Dashboard) -> None:
    written = (FOLDER / f"{dashboard.name}.json").read_text(encoding="utf-8")
    assert written == text(dashboard), "run: python -m tests.chart.dashboards"


@EACH
def test_every_query_is_about_what_the_operator_serves(dashboard: Dashboard) -> None:
    known = served()
    for panel in dashboard.panels:
        for query in panel.queries:
            faults = faults_of(f"{query.written} {query.legend}", known)
            assert faults == [], f"{panel.title}: {query.expression}"


def test_a_query_about_what_is_not_served_is_noticed() -> None:
    known = served()
    assert faults_of("sum(reprieve_nothing_total)", known) == [
        "reprieve_nothing_total is not served"
    ]
    assert faults_of("sum by (planet) (reprieve_intents_open)", known) == ["no label planet"]
    assert faults_of('reprieve_leader{tenant="a"}', known) == ["no label tenant"]
    assert faults_of("vector(1)", known) == ["it is about no metric"]


@EACH
def test_panels_lie_side_by_side_and_do_not_overlap(dashboard: Dashboard) -> None:
    places = [panel["gridPos"] for panel in json.loads(text(dashboard))["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in pairwise(places):
        beside = other["y"] == one["y"] and other["x"] == one["x"] + one["w"]
        below = other["y"] == one["y"] + one["h"] and other["x"] == 0
        assert beside or below


def test_dashboards_are_off_by_default_and_come_as_config_maps(tmp_path: Path) -> None:
    assert len(render(tmp_path).all("ConfigMap")) == 1
    rendered = render(tmp_path, {"dashboards": {"enabled": True, "folder": "GPUs"}})
    found = {
        name: content
        for each in rendered.all("ConfigMap")
        if each["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
        for name, content in each["data"].items()
    }
    assert {name: json.loads(content) for name, content in found.items()} == {
        f"reprieve-{each.name}.json": json.loads(text(each)) for each in DASHBOARDS
    }
    assert {
        each["metadata"]["annotations"]["grafana_folder"]
        for each in rendered.all("ConfigMap")
        if "grafana_dashboard" in each["metadata"]["labels"]
    } == {"GPUs"}
