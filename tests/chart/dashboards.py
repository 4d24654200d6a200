"""Builds the chart's Grafana dashboards. `python -m tests.chart.dashboards` writes them.

One dashboard per question that people ask; each panel is a title, a unit and queries. Rows are as
wide as the screen, and every number has the time range of the dashboard. Source: Grafana's
dashboard model, schema version 39.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.chart.helm import CHART

__all__ = ["DASHBOARDS", "FOLDER", "Dashboard", "Panel", "Query", "text"]

FOLDER: Final = CHART / "files" / "dashboards"
_WIDTH: Final = 24
_HEIGHT: Final = 8
_SELECTED: Final = 'namespace=~"$namespace", job=~"$job"'
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """What is drawn; `legend` in Prometheus' notation. `SELECTED` becomes the variables."""

    expression: str
    legend: str = ""

    @property
    def written(self) -> str:
        """The expression with the dashboard's variables."""
        return self.expression.replace("SELECTED", _SELECTED)


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel; `kind` is a panel type of Grafana, `columns` of 24 how wide it is."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    columns: int = 12
    stacked: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A question, and the panels that answer it."""

    name: str
    title: str
    panels: tuple[Panel, ...]


def _quantiles(histogram: str, by: str = "") -> tuple[Query, ...]:
    labels = f"le, {by}" if by else "le"
    named = f"{{{{{by}}}}} " if by else ""
    rate = f"sum by ({labels}) (rate({histogram}_bucket{{SELECTED}}[$__rate_interval]))"
    return tuple(
        Query(f"histogram_quantile({quantile}, {rate})", f"{named}p{quantile * 100:g}")
        for quantile in (0.5, 0.99)
    )


def _rate(metric: str, *by: str, legend: str = "") -> Query:
    return _summed(f"rate({metric}{{SELECTED}}[$__rate_interval])", by, legend)


def _increase(metric: str) -> Query:
    return Query(f"sum(increase({metric}{{SELECTED}}[$__range]))")


def _now(metric: str, *by: str) -> Query:
    return _summed(f"{metric}{{SELECTED}}", by)


def _summed(expression: str, by: Sequence[str], legend: str = "") -> Query:
    named = legend or " ".join(f"{{{{{label}}}}}" for label in by)
    return Query(f"sum by ({', '.join(by)}) ({expression})" if by else f"sum({expression})", named)


def _number(title: str, query: Query, unit: str = "short") -> Panel:
    return Panel(title, (query,), unit, kind="stat", columns=6)


DASHBOARDS: Final = (
    Dashboard(
        "who-makes-way",
        "Who is preempted",
        (
            _number("Victims", _increase("reprieve_preemptions_total")),
            _number("Lost work", _increase("reprieve_lost_device_seconds_total"), "s"),
            _number("Open preemptions", _now("reprieve_intents_open")),
            _number("Work in loops", _now("reprieve_loop_members")),
            Panel(
                "Victims by plane and rule",
                (_rate("reprieve_preemptions_total", "plane", "rule"),),
                stacked=True,
                text="The rule by which each was chosen, as its record names it.",
            ),
            Panel(
                "Devices whose work is lost, by plane and rule",
                (_rate("reprieve_lost_device_seconds_total", "plane", "reason"),),
                stacked=True,
                text="Device seconds since the last checkpoint or start, each second.",
            ),
            Panel("Open preemptions", (_now("reprieve_intents_open", "plane"),), stacked=True),
            Panel(
                "How preemptions end",
                (_rate("reprieve_intents_closed_total", "plane", "phase"),),
            ),
            Panel(
                "Overdue victims and broken budgets",
                (
                    _rate("scheduler_preemption_overdue_victims_total", legend="overdue"),
                    _rate("scheduler_preemption_pdb_violations_total", legend="budgets"),
                ),
            ),
            Panel(
                "Plans that could not be recorded",
                (_rate("reprieve_plans_unrecorded_total", "plane"),),
            ),
        ),
    ),
    Dashboard(
        "who-waits",
        "Who waits, and why",
        (
            Panel(
                "Waiting units by reason",
                (_now("reprieve_waiting_units", "plane", "reason"),),
                columns=24,
                stacked=True,
                text="The reason that dominates; docs/why-it-waits.md says what each means.",
            ),
            Panel(
                "Pods and groups by queue", (_now("scheduler_queued_entities", "queue", "type"),)
            ),
            Panel(
                "Workloads by ClusterQueue",
                (_now("kueue_pending_workloads", "cluster_queue", "status"),),
            ),
            Panel(
                "Wait for admission",
                _quantiles("kueue_admission_wait_time_seconds", "cluster_queue"),
                "s",
            ),
            Panel(
                "Demands for which no victim was chosen",
                (_rate("reprieve_declined_total", "plane", "reason"),),
            ),
        ),
    ),
    Dashboard(
        "idle-gpus",
        "Idle GPUs",
        (
            Panel("Workloads by phase", (_now("reprieve_gpu_workloads", "phase"),), stacked=True),
            Panel(
                "GPUs that idle work holds",
                (_rate("reprieve_idle_gpu_seconds_total", "namespace", "resource"),),
                stacked=True,
            ),
            Panel("Targets", (_now("reprieve_scrape_targets", "source", "state"),)),
            Panel("Failures", (_rate("reprieve_scrape_failures_total", "source", "reason"),)),
            Panel("Time to read a target", _quantiles("reprieve_scrape_seconds", "source"), "s"),
            Panel(
                "Samples, and those dropped",
                (
                    _rate("reprieve_samples_total", "source"),
                    _rate("reprieve_samples_dropped_total", "reason"),
                ),
            ),
        ),
    ),
    Dashboard(
        "quota",
        "Quota",
        (
            Panel(
                "Used of nominal quota",
                (
                    Query(
                        "sum by (cluster_queue, resource) "
                        "(kueue_cluster_queue_resource_usage{SELECTED}) / "
                        "sum by (cluster_queue, resource) "
                        "(kueue_cluster_queue_nominal_quota{SELECTED})",
                        "{{cluster_queue}} {{resource}}",
                    ),
                ),
                "percentunit",
                text="Above 100 % is borrowed. Needs metrics.enableClusterQueueResources.",
            ),
            Panel(
                "Weighted share",
                (_now("kueue_cluster_queue_weighted_share", "cluster_queue"),),
            ),
            Panel("Admissions", (_rate("kueue_admitted_workloads_total", "cluster_queue"),)),
            Panel(
                "Evictions by reason",
                (_rate("kueue_evicted_workloads_total", "cluster_queue", "reason"),),
                stacked=True,
            ),
            Panel(
                "Preemptions by the queue that made them",
                (_rate("kueue_preempted_workloads_total", "preempting_cluster_queue", "reason"),),
                stacked=True,
            ),
            Panel("Time of a cycle", _quantiles("kueue_admission_attempt_duration_seconds"), "s"),
        ),
    ),
    Dashboard(
        "operator",
        "The operator",
        (
            _number("Leaders", _now("reprieve_leader")),
            _number("Faults", _increase("reprieve_faults_total")),
            _number("Decisions stopped", _increase("reprieve_decisions_stopped_total")),
            _number("Watches opened again", _increase("reprieve_watch_restarts_total")),
            Panel("Lag of the event loop", _quantiles("reprieve_loop_lag_seconds"), "s"),
            Panel("Time of an evaluation", _quantiles("reprieve_evaluation_seconds", "plane"), "s"),
            Panel(
                "Requests to the API server",
                (_rate("reprieve_api_requests_total", "method", "code"),),
            ),
            Panel(
                "Requests the webhooks refused",
                (_rate("reprieve_webhook_refused_total", "reason"),),
            ),
            Panel("CPU", (_rate("process_cpu_seconds_total", "pod"),)),
            Panel("Memory", (_now("process_resident_memory_bytes", "pod"),), "bytes"),
        ),
    ),
)


def text(dashboard: Dashboard) -> str:
    """Return a dashboard as Grafana reads it."""
    return json.dumps(_document(dashboard), indent=1, sort_keys=True) + "\n"


def _document(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"reprieve-{dashboard.name}",
        "title": f"Reprieve: {dashboard.title}",
        "tags": ["reprieve"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "links": [
            {"type": "dashboards", "tags": ["reprieve"], "title": "Reprieve", "asDropdown": True}
        ],
        "panels": list(_placed(dashboard.panels)),
    }


def _variables() -> Iterable[Mapping[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    for name in ("namespace", "job"):
        yield {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": f"label_values(reprieve_leader, {name})",
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _placed(panels: Sequence[Panel]) -> Iterable[dict[str, Any]]:
    left = top = height = 0
    for number, panel in enumerate(panels, start=1):
        tall = _HEIGHT // 2 if panel.kind == "stat" else _HEIGHT
        if left + panel.columns > _WIDTH:
            left, top = 0, top + height
        height = tall
        yield _panel(number, panel, {"x": left, "y": top, "w": panel.columns, "h": tall})
        left += panel.columns


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    custom = {"fillOpacity": 20, "stacking": {"mode": "normal" if panel.stacked else "none"}}
    return {
        "id": number,
        "title": panel.title,
        "description": panel.text,
        "type": panel.kind,
        "datasource": _SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                **({"custom": custom} if panel.kind == "timeseries" else {}),
            },
            "overrides": [],
        },
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": query.written,
                "legendFormat": query.legend or "__auto",
                "instant": panel.kind == "stat",
            }
            for at, query in enumerate(panel.queries)
        ],
    }


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each.name}.json").write_text(text(each), encoding="utf-8")
