"""Study files: what is accepted, and that each refusal names file, line and accepted form."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve.engine.disruptions.questions import Enforcement, GovernorPolicy
from reprieve.engine.quota.model import (
    BorrowWithinCohort,
    Policy,
    Preemption,
    QueueingStrategy,
    Strategy,
)
from reprieve.simulation.demand import Tenants
from reprieve.simulation.policy import DEFAULT_PREEMPTION
from reprieve.simulation.study import Cluster, read_study
from reprieve.units.errors import UsageError
from tests.simulation.building import SECOND, STUDY, study_in, work


def test_a_study_is_read_as_it_is_written(tmp_path: Path) -> None:
    study = read_study(study_in(tmp_path))
    trace = (("trace", tmp_path / "trace.csv"),)
    assert study.cluster == Cluster(2, 4)
    assert study.workload.files == {0: trace, 1: trace, 2: trace}
    assert study.workload.loads == (1.2,)
    assert study.tenants == Tenants(2, 1.0, {0: 0.6, 100: 0.4})
    assert study.work == work(600, 10, 60, 30)
    text = STUDY.replace("restart: 1m", "restart: 1m, evict: 30s")
    assert read_study(study_in(tmp_path, text)).work == work(600, 10, 60, 30, 30)
    assert [policy.name for policy in study.policies] == ["none", "classical"]
    assert study.policies[0].preemption == Preemption()
    assert study.policies[1].preemption == DEFAULT_PREEMPTION


def test_a_policy_is_what_the_operator_would_be_told(tmp_path: Path) -> None:
    path = study_in(
        tmp_path,
        STUDY
        + """\
  fair: {quota: {preemptionPolicy: FairSharing, loopLimit: 5, loopWindow: 2h}}
  governed: {quota: {harmOrder: true}, governor: {enforce: true, loopLimit: 7}}
  careful:
    preemption:
      withinClusterQueue: LowerOrNewerEqualPriority
      reclaimWithinCohort: LowerPriority
      borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
    strategy: StrictFIFO
    minRuntime: {preempt: 10m, reclaim: 20m}
""",
    )
    fair, governed, careful = read_study(path).policies[2:]
    assert fair.settings.fair_sharing == (
        Strategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
        Strategy.LESS_THAN_INITIAL_SHARE,
    )
    assert (fair.governor.loop_limit, fair.governor.loop_window) == (5, 7_200 * SECOND)
    assert governed.governor == GovernorPolicy(loop_limit=7, enforcement=Enforcement.EQUALS)
    assert governed.settings.harm_order
    assert not fair.settings.harm_order
    assert careful.preemption == Preemption(
        Policy.LOWER_OR_NEWER_EQUAL_PRIORITY,
        Policy.LOWER_PRIORITY,
        BorrowWithinCohort(Policy.LOWER_PRIORITY, 100),
    )
    assert careful.strategy is QueueingStrategy.STRICT_FIFO
    assert (careful.preempt_min_runtime_s, careful.reclaim_min_runtime_s) == (600, 1_200)


def test_a_folder_has_the_traces_of_each_seed(tmp_path: Path) -> None:
    for seed in (0, 1):
        (tmp_path / "traces" / f"seed{seed}").mkdir(parents=True)
        for name in ("one.csv", "two.csv"):
            (tmp_path / "traces" / f"seed{seed}" / name).write_text("arrival_s,gpus,duration_s\n")
    path = study_in(
        tmp_path,
        STUDY.replace(
            "trace.csv, load: [1.2], seeds: [0, 1, 2]", "traces, seeds: [1], only: [two]"
        ),
    )
    workload = read_study(path).workload
    assert workload.files == {1: (("two", tmp_path / "traces" / "seed1" / "two.csv"),)}
    assert workload.loads == (None,)


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ("nodes: 2", "nodes: 0", ":1: cluster.nodes: 0; accepted: an integer from 1 to 100000"),
        ("nodes: 2", "node: 2", ":1: cluster: unknown key 'node'; accepted: nodes, devices"),
        ("{nodes: 2, devices: 4}", "{nodes: 2}", ":1: cluster: without devices"),
        (
            "trace: csv",
            "trace: excel",
            ":2: workload.trace: 'excel'; accepted: csv, acme, gavel, helios",
        ),
        ("load: [1.2]", "load: [high]", ":2: workload.load[0]: 'high'; accepted: a number"),
        ("load: [1.2]", "load: [1, 1]", ":2: workload.load: [1.0, 1.0]; accepted: each value once"),
        ("path: trace.csv", "path: none.csv", "there is nothing there; accepted: a trace, or a"),
        ("zipf: 1", "zipf: -1", ":3: tenants.zipf: -1; accepted: a number from 0 to 10"),
        ("0: 0.6", "low: 0.6", ":3: tenants.priorities.low: 'low'; accepted: an integer"),
        ("save: 10s", "save: 10", ":4: work.save: 10; accepted: a Go duration such as"),
        ("preemption: Never", "preemption: Always", ":6: policies.none.preemption: 'Always'"),
        (
            "classical: {}",
            "classical: {quota: {harm: 1}}",
            ":7: policies.classical: quota: unknown key 'harm'; accepted: preemptionPolicy,",
        ),
        (
            "classical: {}",
            "classical: {quota: {webhooks: {}}}",
            ":7: policies.classical.quota.webhooks: changes nothing in a replay; leave it out",
        ),
        ("classical: {}", "classical: {idle: {}}", ":7: policies.classical: unknown key"),
        ("policies:", "policy:", ": unknown key 'policy'; accepted: cluster, workload, tenants,"),
        ("classical: {}", "none: {}", ":7:3: not YAML: key 'none' is given twice; accepted: each"),
        ("none: {", "none: {{", "; accepted: a study file in YAML"),
        ("classical: {}", "\tclassical: {}", ":7:3: not YAML: found character '\\t' that cannot"),
        ("classical: {}", "classical: &it {quota: *it}", "an alias stands for what it is in"),
        ("classical: {}", "1: {}", ":7: policies.1: 1; accepted: a name of letters"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_accepted_form(
    tmp_path: Path, written: str, instead: str, said: str
) -> None:
    assert written in STUDY
    path = study_in(tmp_path, STUDY.replace(written, instead, 1))
    with pytest.raises(UsageError) as refused:
        read_study(path)
    assert str(refused.value).startswith(str(path))
    assert said in str(refused.value)


def test_what_only_a_placement_on_nodes_would_use_is_accepted_and_told(tmp_path: Path) -> None:
    text = STUDY + "  harm: {quota: {harmOrder: true}, scheduling: {harmOrder: true}}\n"
    study = read_study(study_in(tmp_path, text))
    assert study.notices == (
        "policies.harm.scheduling: changes nothing, since jobs are not placed on nodes",
    )
    assert read_study(study_in(tmp_path)).notices == ()
    misspelt = text.replace("scheduling: {harmOrder: true}}", "scheduling: {harm: true}}")
    with pytest.raises(UsageError, match="accepted: "):
        read_study(study_in(tmp_path, misspelt))
