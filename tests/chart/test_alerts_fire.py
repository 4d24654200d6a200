"""Every alert fires when it should and is quiet otherwise, as promtool evaluates its rule.

Slow the first time: promtool is built from its Go module.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.chart.dashboards import DASHBOARDS
from tests.chart.rules import groups, rules

pytestmark = pytest.mark.slow

_TARGET: Final = 'namespace="ops", job="reprieve"'


@dataclass(frozen=True, slots=True)
class Story:
    """Series, by minutes, with which an alert fires at a minute, and others with which it does not.

    A series is its name and labels; its values are in promtool's notation. `labels`: those of the
    alert beside its severity, `job` and `namespace`.
    """

    at: int
    fires: Mapping[str, str]
    quiet: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)


def _one(name: str, labels: str = "") -> str:
    return f"{name}{{{_TARGET}, {labels}}}" if labels else f"{name}{{{_TARGET}}}"


_RISES: Final = "0x9 0+1x120"
_FLAT: Final = "7x130"
_POLL: Final = _one("reprieve_last_poll_timestamp_seconds")
_INTERVAL: Final = _one("reprieve_polling_interval_seconds")
_LEADS: Final = _one("reprieve_leader")
_OPEN: Final = _one("reprieve_intents_open", 'plane="idle"')
_CLOSED: Final = _one("reprieve_intents_closed_total", 'plane="idle", phase="Completed"')
_STALE: Final = _one("scheduler_stale_decisions_total")
_PODS: Final = _one("scheduler_schedule_attempts_total", 'result="scheduled", profile="p"')
_GROUPS: Final = _one("scheduler_podgroup_schedule_attempts_total", 'result="x", profile="p"')
_PENDING: Final = _one("kueue_pending_workloads", 'cluster_queue="a", status="active"')
_ADMITTED: Final = _one("kueue_admitted_workloads_total", 'cluster_queue="a"')
_LAG: Final = "reprieve_loop_lag_seconds_bucket"


def _counts(name: str, **labels: str) -> Story:
    """Return the story of a counter that ought to stand still."""
    written = ", ".join(f'{key}="{value}"' for key, value in labels.items())
    series = _one(name, written)
    return Story(60, {series: _RISES}, {series: _FLAT}, labels)


STORIES: Final[Mapping[str, Story]] = {
    "ReprieveNoLeader": Story(
        10,
        {_LEADS: "1x4 0x20", 'reprieve_leader{namespace="ops", job="reprieve", pod="b"}': "0x30"},
        {_LEADS: "1x30", 'reprieve_leader{namespace="ops", job="reprieve", pod="b"}': "0x30"},
    ),
    "ReprieveTwoLeaders": Story(
        10,
        {_LEADS: "1x30", 'reprieve_leader{namespace="ops", job="reprieve", pod="b"}': "1x30"},
        {_LEADS: "1x30", 'reprieve_leader{namespace="ops", job="other"}': "1x30"},
    ),
    "ReprieveFaults": _counts("reprieve_faults_total", logger="reprieve.idle"),
    "ReprieveIntentStuck": Story(
        90,
        {_OPEN: "2x120", _CLOSED: "5x120"},
        {_OPEN: "2x120", _CLOSED: "0+1x120"},
        {"plane": "idle"},
    ),
    "ReprieveRecordRefused": _counts("reprieve_plans_unrecorded_total", plane="quota"),
    "ReprieveLostWorkHigh": Story(
        120,
        {_one("reprieve_lost_device_seconds_total", 'plane="idle"'): "0+600x130"},
        {_one("reprieve_lost_device_seconds_total", 'plane="idle"'): "0+400x130"},
    ),
    "ReprieveDecisionsStopped": _counts("reprieve_decisions_stopped_total", plane="scheduling"),
    "ReprieveLoopLag": Story(
        60,
        {
            _one(_LAG, 'le="0.5"'): "0+5x120",
            _one(_LAG, 'le="1.0"'): "0+10x120",
            _one(_LAG, 'le="+Inf"'): "0+10x120",
        },
        {_one(_LAG, 'le="0.5"'): "0+10x120", _one(_LAG, 'le="+Inf"'): "0+10x120"},
    ),
    "ReprieveWatchesRestart": Story(
        60,
        {_one("reprieve_watch_restarts_total", 'resource="pods"'): "0+30x120"},
        {_one("reprieve_watch_restarts_total", 'resource="pods"'): "0+2x120"},
        {"resource": "pods"},
    ),
    "ReprieveHarmBudgetExhausted": Story(
        40,
        {_one("reprieve_harm_budget_exhausted", 'budget="batch-day"'): "1x60"},
        {_one("reprieve_harm_budget_exhausted", 'budget="batch-day"'): "0x60"},
        {"budget": "batch-day"},
    ),
    "ReprieveNoticesUnheard": Story(
        60,
        {_one("reprieve_notices_total", 'plane="quota", end="unheard"'): _RISES},
        {_one("reprieve_notices_total", 'plane="quota", end="saved"'): _RISES},
        {"plane": "quota"},
    ),
    "ReprievePollStale": Story(
        20,
        {_POLL: "0x60", _INTERVAL: "15x60", _LEADS: "1x60"},
        # A process that waits for the lease polls nothing.
        {_POLL: "0x60", _INTERVAL: "15x60", _LEADS: "0x60"},
    ),
    "ReprieveScrapesFail": _counts(
        "reprieve_scrape_failures_total", source="exporter", reason="timeout"
    ),
    "ReprieveVictimsOverdue": _counts("scheduler_preemption_overdue_victims_total"),
    "ReprieveBudgetsBroken": _counts("scheduler_preemption_pdb_violations_total"),
    "ReprieveDecisionsStale": Story(
        60,
        {_STALE: "0+3x120", _PODS: "0+6x120", _GROUPS: "0+4x120"},
        {_STALE: "0+1x120", _PODS: "0+6x120", _GROUPS: "0+4x120"},
    ),
    "ReprieveLoop": Story(
        30, {_one("reprieve_loop_members"): "2x60"}, {_one("reprieve_loop_members"): "0x60"}
    ),
    "ReprieveUnproven": _counts("reprieve_quota_unproven_preemptions_total", cluster_queue="a"),
    "ReprieveQueueStuck": Story(
        150,
        {_PENDING: "3x200", _ADMITTED: "9x200"},
        {_PENDING: "3x200", _ADMITTED: "0+1x200"},
        {"cluster_queue": "a"},
    ),
}


def _checked(promtool: Path, folder: Path, tests: Sequence[Any]) -> str:
    (folder / "rules.yaml").write_text(yaml.safe_dump(groups()))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": list(tests)}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [str(promtool), "test", "rules", "tests.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _test(series: Mapping[str, str], alert: str, at: int, expected: Sequence[Any]) -> Any:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{at}m", "alertname": alert, "exp_alerts": list(expected)}
        ],
    }


def test_every_alert_has_a_story() -> None:
    assert list(STORIES) == [rule.alert for rule in rules()]


@pytest.mark.parametrize("alert", STORIES)
def test_an_alert_is_quiet_when_nothing_is_the_matter(
    promtool: Path, tmp_path: Path, alert: str
) -> None:
    story = STORIES[alert]
    said = _checked(promtool, tmp_path, [_test(story.quiet, alert, story.at, ())])
    assert said == ""


@pytest.mark.parametrize("alert", STORIES)
def test_an_alert_fires_when_it_should(promtool: Path, tmp_path: Path, alert: str) -> None:
    story = STORIES[alert]
    (rule,) = [rule for rule in rules() if rule.alert == alert]
    # Expected to be quiet, promtool says what fires: its labels, and annotations with the values.
    said = _checked(promtool, tmp_path, [_test(story.fires, alert, story.at, ())])
    labels = {"job": "reprieve", "namespace": "ops", "severity": rule.severity, **story.labels}
    for key, value in labels.items():
        assert f'{key}="{value}"' in said, said
    assert f'alertname="{alert}"' in said, said
    assert said.count("alertname=") == 1, f"it fires once for what is one: {said}"
    assert "<error" not in said and "<no value>" not in said, said


def test_the_queries_of_the_dashboards_are_promql(promtool: Path, tmp_path: Path) -> None:
    variables = {"$namespace": ".*", "$job": ".*", "$__rate_interval": "5m", "$__range": "6h"}
    recorded: list[dict[str, str]] = []
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for query in panel.queries:
                expression = query.written
                for name, value in variables.items():
                    expression = expression.replace(name, value)
                recorded.append({"record": f"query:number{len(recorded)}", "expr": expression})
    assert len(recorded) > 30
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": recorded}]}))
    checked = subprocess.run(
        [str(promtool), "check", "rules", "--lint=none", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
