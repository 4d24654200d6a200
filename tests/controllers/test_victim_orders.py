"""Orders of victims that packages offer: found by name, tried at the start, asked, and recorded."""

from __future__ import annotations

import logging
import shutil
import tomllib
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

import reprieve.lab.plugins
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import Policy
from reprieve.engine.quota.model import Workload
from reprieve.lab import Cluster, Verdict, apply, decide
from reprieve.planes.common.process_settings import OperatorOptions, operator_settings
from reprieve.planes.common.victim_orders import ORDER_ENTRY_POINTS, Ranking
from reprieve.units.errors import UsageError
from tests.controllers.sample_package import install_metadata
from tests.engine.rows import NOW, ago, demand, snapshot, workload

PACKAGE = Path(__file__).parents[2] / "examples" / "plugins"
CLUSTER = """
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: Node
metadata: {name: node-0}
status: {allocatable: {cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "8"}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: any, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: q, namespace: team}
spec: {clusterQueue: cq}
"""


@pytest.fixture(autouse=True)
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package of `examples/plugins`, and one whose orders break a rule."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())
    shutil.copy(PACKAGE / "reprieve_sample_plugins.py", tmp_path)
    install_metadata(tmp_path, project["project"]["entry-points"], project["project"]["name"])
    names = ("half", "restless", "broken", "constant")
    bad = {name.title(): f"tests.controllers.test_victim_orders:{name}" for name in names}
    install_metadata(tmp_path, {ORDER_ENTRY_POINTS: bad}, "bad-orders")
    monkeypatch.syspath_prepend(str(tmp_path))


def half(row: Any) -> float:
    return 0.5


_numbers = count()


def restless(row: Any) -> int:
    return next(_numbers)


def broken(row: Any) -> int:
    raise RuntimeError("out of order")


constant = 7


def job(name: str, gpus: int, priority: str = "") -> str:
    return f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: team, labels: {{kueue.x-k8s.io/queue-name: q}}}}
spec:
  suspend: true
  template:
    spec:
      schedulerName: reprieve-scheduler
      priorityClassName: "{priority}"
      restartPolicy: Never
      containers:
      - name: main
        image: example.org/train:1
        resources: {{requests: {{nvidia.com/gpu: "{gpus}"}}, limits: {{nvidia.com/gpu: "{gpus}"}}}}
"""


def test_an_order_decides_among_candidates_of_one_priority() -> None:
    cluster = apply(decide(Cluster.from_yaml(CLUSTER), job("small", 2)))
    cluster = apply(decide(cluster, job("large", 6)))
    urgent = job("urgent", 2, "urgent")
    for settings, victim in (({}, "large"), ({"quota": {"victimOrder": "FewestDevices"}}, "small")):
        decision = decide(cluster, urgent, settings=settings)
        assert decision.verdict is Verdict.STARTS_WITH_VICTIMS
        assert decision.victims == (f"Job team/{victim}",)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "Nobody",
            "'Nobody'; accepted: Broken, Constant, FewestDevices, Half, Restless, YoungestIdle",
        ),
        ("Constant", "plugin Constant .* is 7; accepted: a function"),
        ("Half", "it answered 0.5; accepted: a whole number of 64 bits"),
        ("Restless", "it answered .* and then .*; accepted: a whole number"),
        ("Broken", r"it failed: RuntimeError\('out of order'\)"),
    ],
)
@pytest.mark.parametrize("section", ["quota", "gpuPreemption"])
def test_an_order_that_breaks_a_rule_is_refused_at_the_start(
    section: str, name: str, why: str
) -> None:
    text = f"{section}: {{victimOrder: {name}}}"
    environment = {
        "GPU_PREEMPTION_ENABLED": "true",
        "GPU_PREEMPTION_METRICS_ENDPOINT": "http://exporter:9400/metrics",
    }
    options = OperatorOptions(("idle", "quota"), environment, settings_text=text)
    with pytest.raises(UsageError, match=why) as refused:
        operator_settings(options)
    assert f"{section}.victimOrder" in str(refused.value)


def test_what_an_order_cannot_rank_counts_as_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = Ranking("Broken", broken)
    with caplog.at_level(logging.ERROR):
        for name in ("a", "b"):
            assert found.of(Workload("team", name)).rank == 0
    [line] = caplog.messages
    assert line.startswith("victimOrder Broken: team/a: it failed")


def test_idle_work_goes_in_the_order_that_was_installed() -> None:
    from reprieve_sample_plugins import youngest_idle  # type: ignore[import-not-found]

    rows = [workload(name, idle_since=ago(age)) for name, age in (("old", 1800), ("young", 900))]
    for ranking, victim in ((Ranking(), "old"), (Ranking("Y", youngest_idle), "young")):
        ranked = tuple(ranking.of(row) for row in rows)
        [plan] = evaluate(snapshot(*ranked, demand("train")), Policy(), NOW).plans
        assert [each.root.name for each in plan.victims] == [victim]
        # The number is part of the record.
        encoded = msgspec.json.encode(ranked[1])
        assert msgspec.json.decode(encoded, type=type(ranked[1])) == ranked[1]


def test_types_of_orders_are_part_of_the_face() -> None:
    import doctest

    found = doctest.testmod(reprieve.lab.plugins)
    assert (found.attempted, found.failed) == (3, 0)
