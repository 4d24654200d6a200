"""Koordinator's guide on job-level preemption, word for word, on two nodes with real kubelets.

The nodes of the guide have 4 CPUs and nothing on them; these have 5, for the operator's pod.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import yaml

from tests.node.cluster import Cluster, Machine
from tests.node.guides.reading import apply, manifest, pod_table, rows
from tests.node.release import Object, Release
from tests.node.work import evicted

pytestmark = [pytest.mark.slow, pytest.mark.node]

VICTIMS, WORKERS = ("lp-pod-1", "lp-pod-2"), ("hp-worker-1", "hp-worker-2")
NODES = {"n1", "n2"}
VALUES: Object = {
    "controllers": ["scheduling"],
    "scheduling": {"schedulerNames": ["koord-scheduler"]},
}


@pytest.fixture(scope="module")
def machine() -> Machine:
    manifest("gang-priorityclasses.yaml")
    return Machine(devices={}, processors=5)


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Release:
    kinds = subprocess.run(
        [sys.executable, "-m", "reprieve", "crds", "--pod-groups"],
        capture_output=True,
        text=True,
        check=True,
    )
    cluster.kubectl("apply", "-f", "-", given=kinds.stdout)
    found = Release(cluster, VALUES)
    found.helm("install", "--create-namespace", "--wait", "--timeout", "5m")
    return found


def shown(
    cluster: Cluster,
    expected: dict[str, tuple[str, str]],
    holds: Callable[[dict[str, dict[str, str]]], object] = bool,
) -> dict[str, dict[str, str]]:
    """Wait until the table has exactly these pods with READY and STATUS, and this holds, too."""

    def found() -> dict[str, dict[str, str]] | None:
        table = pod_table(cluster)
        seen = {name: (row["READY"], row["STATUS"]) for name, row in table.items()}
        return table if seen == expected and holds(table) else None

    table: dict[str, dict[str, str]] = cluster.until(f"kubectl shows {expected}", found)
    return table


@pytest.mark.usefixtures("release")
def test_the_guide_on_gangs_word_for_word(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "koordinator-system")
    apply(cluster, "gang-koord-scheduler-config.yaml")
    settings = cluster.kubectl(
        *("-n", "koordinator-system", "get", "cm", "koord-scheduler-config", "-o", "yaml")
    )
    assert "enablePreemption: true" in settings

    apply(cluster, "gang-priorityclasses.yaml")
    classes = {row[0]: row[1:3] for row in rows(cluster.kubectl("get", "priorityclass"))}
    assert classes["high-priority"] == ["1000000", "false"]
    assert classes["low-priority"] == ["1000", "false"]

    printed = apply(cluster, "gang-low-priority-pods.yaml")
    assert printed == ["pod/lp-pod-1 created", "pod/lp-pod-2 created"]
    table = shown(cluster, dict.fromkeys(VICTIMS, ("1/1", "Running")))
    assert {row["NODE"] for row in table.values()} == NODES

    apply(cluster, "gang-high-priority-job.yaml")
    waiting, leaving = ("0/1", "Pending"), ("1/1", "Terminating")
    table = shown(
        cluster,
        {**dict.fromkeys(WORKERS, waiting), **dict.fromkeys(VICTIMS, leaving)},
        lambda found: {found[name]["NOMINATED NODE"] for name in WORKERS} == NODES,
    )
    assert {table[name]["NODE"] for name in WORKERS} == {"<none>"}
    nominated = {name: table[name]["NOMINATED NODE"] for name in WORKERS}

    victim = yaml.safe_load(cluster.kubectl("get", "pod", "lp-pod-1", "-o", "yaml"))
    (condition,) = (
        each for each in victim["status"]["conditions"] if each["type"] == "DisruptionTarget"
    )
    assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
    assert condition["message"] in {
        "koord-scheduler: preempting to accommodate higher priority pods, preemptor: "
        f"default/hp-training-job, triggerpod: default/{worker}"
        for worker in WORKERS
    }

    table = shown(cluster, dict.fromkeys(WORKERS, ("1/1", "Running")))
    assert {name: row["NODE"] for name, row in table.items()} == nominated
    assert {row["NOMINATED NODE"] for row in table.values()} == {"<none>"}
    assert sorted(evicted(cluster, "default")) == [*VICTIMS]
