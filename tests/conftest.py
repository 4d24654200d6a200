"""Fixtures for every folder, what is left out of the README's line, and a report of each test.

The report goes to the file `$REPRIEVE_TEST_REPORT`, for `.ci/skips.py`. No folder of tests has a
second try: a test that fails now and then is a race, in itself or in the product.
"""

from __future__ import annotations

import gc
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from kubelocal.tests.conftest import kubectl, pytest_configure
from tests.granted import comparing_rights
from tests.tiers import MOST_VARIANTS, is_slow_variant

__all__ = ["SLOW", "THOROUGH", "THOROUGH_TESTS", "kubectl", "pytest_configure"]

#: What is marked `thorough`: with all of it the README's line would take thrice as long.
THOROUGH: Final = (
    # Real processes, real tools, real API servers.
    "tests/bench/",
    "tests/chart/",
    "tests/ci/test_how_to_add.py",
    "tests/ci/test_unused.py",
    "tests/cli/test_operator_namespace.py",
    "tests/cli/test_unreadable_files.py",
    "tests/conformance/test_topology_stories.py",
    "tests/crash/",
    "tests/docs/test_commands_run.py",
    "tests/docs/test_quota_troubleshooting.py",
    "tests/docs/test_scheduling_troubleshooting.py",
    "tests/execution/test_notice_kept.py",
    "tests/frontend/browser/",
    "tests/hostile/",
    "tests/idle/test_configuration.py",
    "tests/idle/test_explain.py",
    "tests/integration/",
    "tests/kubectl/test_golden.py",
    "tests/kueue/",
    "tests/peers/",
    "tests/quota_plane/test_bad_input.py",
    "tests/quota_plane/test_faults.py",
    "tests/quota_plane/test_kinds.py",
    "tests/quota_plane/test_observed.py",
    "tests/quota_plane/test_own_faults.py",
    "tests/scenarios/test_demo.py",
    "tests/scenarios/test_scenarios.py",
    "tests/scenarios/test_up.py",
    "tests/scheduling/test_notice_handler.py",
    "tests/scheduling/test_notice_on_shared_nodes.py",
    "tests/scheduling/test_requested_evictions.py",
    "tests/scheduling/test_walkthrough.py",
    "tests/scheduling/test_watchdog.py",
    "tests/scheduling/test_three_under_load.py",
    "tests/tutorials/",
    "tests/walkthrough/",
    "tests/idle/test_clock_steps.py",
    "tests/shadow/test_command.py",
    "tests/simulation/test_shards.py",
    "tests/simulation/test_simulate_command.py",
    "tests/simulation/test_validation.py",
    "tests/web/test_dashboard.py",
    "tests/web/test_opening.py",
    "tests/web/test_resuming.py",
    "tests/web/test_web_command.py",
    "tests/whatif/test_command.py",
    # Deaths at every write, and faults drawn at random.
    "tests/scheduling/crash/",
    "tests/scheduling/faults/",
    # Stories that take seconds each; one or a few of their kind stay in the README's line.
    "tests/controllers/test_fork.py",
    "tests/controllers/test_solve.py",
    "tests/disruptions/test_packed_names.py",
    "tests/engine/devices/test_alike.py",
    "tests/engine/devices/test_following.py",
    "tests/execution/test_parts.py",
    "tests/explain/test_bad_questions.py",
    "tests/gangs/test_odd_gangs.py",
    "tests/gangs/test_plane.py",
    "tests/idle/test_beside_others.py",
    "tests/idle/test_claims.py",
    "tests/idle/test_rights.py",
    "tests/idle/test_start.py",
    "tests/oracle/scheduling/test_oracle_against_vectors.py",
    "tests/quota/test_second_opinion.py",
    "tests/quota_plane/test_idle_demands.py",
    "tests/quota_plane/test_kinds_lives.py",
    "tests/quota_plane/test_made_again.py",
    "tests/quota_plane/test_restarted_jobs.py",
    "tests/quota_plane/test_surplus.py",
    "tests/scheduling/gates/",
    "tests/scheduling/test_governor.py",
    "tests/scheduling/test_observed.py",
    "tests/scheduling/test_set_aside.py",
    "tests/simulation/test_idle_replay.py",
    "tests/simulation/test_idle_study.py",
    "tests/simulation/test_joint_replay.py",
    "tests/simulation/test_own_policies.py",
    "tests/simulation/test_scheduling_replay.py",
    "tests/telemetry/test_quota_record.py",
    "tests/telemetry/test_record.py",
    "tests/telemetry/test_scheduling_record.py",
    "tests/together/test_explained.py",
    "tests/together/test_granted_reads.py",
    "tests/together/test_processes.py",
    "tests/together/test_records.py",
    "tests/together/test_returns.py",
    "tests/whatif/test_again.py",
    "tests/whatif/test_priority_fix.py",
    "tests/whatif/test_quota.py",
    "tests/whatif/test_told_causes.py",
    "tests/whatif/test_unjudged.py",
    "tests/whatif/test_verified_changes.py",
    # Stories and properties that take long on two cores.
    "tests/cli/test_kubectl_plugin.py",
    "tests/disruptions/test_independent.py",
    "tests/engine/cluster/test_cluster_properties.py",
    "tests/engine/scheduling/test_mixtures.py",
    "tests/engine/scheduling/test_promises.py",
    "tests/engine/test_properties.py",
    "tests/idle/test_notice.py",
    "tests/oracle/topology/test_fresh_cases.py",
    "tests/quota/test_options.py",
    "tests/quota_plane/test_leaving.py",
    "tests/quota_plane/test_notice.py",
    "tests/quota_plane/test_process.py",
    "tests/scenarios/test_staging.py",
    "tests/scheduling/test_harm_budgets.py",
    "tests/scheduling/test_hostile_notice.py",
    "tests/scheduling/test_reported_checkpoints.py",
    "tests/simulation/test_domains.py",
    "tests/simulation/test_refusals.py",
    "tests/together/test_one_demand.py",
    "tests/whatif/test_pod_admission.py",
    "tests/idle/test_held_by_owners.py",
    "tests/idle/test_preemption_delay.py",
    "tests/idle/test_submitted_again.py",
    "tests/quota_plane/test_clock_steps.py",
    "tests/quota_plane/test_failed_nodes.py",
    "tests/quota_plane/test_held_by_owners.py",
    "tests/quota_plane/test_lost_work.py",
    "tests/quota_plane/test_preemption_delay.py",
    "tests/scheduling/test_refused_kinds.py",
    # A thousand displacements, one gang after the other; many gangs, several schedulers.
    "tests/scheduling/test_bounds.py",
    "tests/scheduling/test_several.py",
    "tests/scheduling/test_objects_kept.py",
    # Hundreds of random clusters decided twice, or with the rules broken.
    "tests/disruptions/test_bounds.py",
    "tests/disruptions/test_properties.py",
    "tests/disruptions/test_server.py",
    "tests/disruptions/test_two_schedulers.py",
    "tests/engine/scheduling/test_min_runtime_agreement.py",
    "tests/engine/scheduling/test_paths.py",
    "tests/engine/filters/test_following.py",
    "tests/engine/scores/test_following.py",
    "tests/intake/test_exposition_oracle.py",
    "tests/oracle/scheduling/test_clusters.py",
    "tests/quota/test_targets.py",
    "tests/whatif/test_idle.py",
    "tests/whatif/test_kinds.py",
    "tests/whatif/test_new_names.py",
)
#: What is marked `slow`: rules broken on purpose, deaths at every write, hundreds of clusters
#: of which `THOROUGH` has others. CI has half an hour.
SLOW: Final = (
    "tests/engine/test_idle_mutations.py",
    "tests/together/test_deaths.py",
    "tests/engine/scheduling/test_agreement.py",
    "tests/engine/scheduling/test_mutations.py",
    "tests/engine/scheduling/test_options.py",
    "tests/quota/test_mutations.py",
    "tests/quota_plane/test_bounded_sets.py",
    "tests/quota_plane/test_topology_stories.py",
    "tests/scheduling/crash/test_harm_ledger.py",
    "tests/scheduling/crash/test_whole_units.py",
    "tests/scheduling/test_execution.py",
    "tests/simulation/test_least_lost_schedule.py",
    "tests/together/test_simulated.py",
    "tests/whatif/test_proof.py",
)
#: Tests that are `thorough` too, by file: the longest of those that stay in the README's line.
THOROUGH_TESTS: Final = {
    "tests/explain/test_offered_steps.py": (
        "test_each_step_that_is_offered_makes_a_plan_state_that_it_starts",
    ),
    "tests/conformance/test_topology_vectors.py": ("test_published_cycles",),
    "tests/idle/test_metrics.py": (
        "test_a_sample_of_another_time_by_its_own_clock_makes_nobody_idle",
        "test_an_endpoint_that_gives_no_samples_makes_nobody_idle",
    ),
    "tests/conformance/test_quota_vectors.py": ("test_shifted_copy",),
    "tests/conformance/test_workload_aware_vectors.py": (
        "test_shifted_copy",
        "test_with_the_second_reprieve_pass",
    ),
    "tests/engine/diagnosis/test_idle.py": (
        "test_a_waiting_demand_has_exactly_one_reason_in_random_clusters",
    ),
    "tests/engine/diagnosis/test_quota_fixes.py": (
        "test_the_first_fix_admits_in_nearly_all_generated_cases",
    ),
    "tests/engine/diagnosis/test_scheduling_fixes.py": (
        "test_every_change_that_is_suggested_lets_it_start",
        "test_the_first_change_that_is_suggested_lets_it_start",
    ),
    "tests/engine/scheduling/test_node_bounds.py": (
        "test_the_best_of_some_nodes_is_the_best_of_all",
    ),
    "tests/engine/scheduling/test_reach.py": (
        "test_harm_breaks_no_budget_and_takes_no_priority_that_the_kep_would_not",
    ),
    "tests/gangs/test_promises.py": (
        "test_the_proof_notices_a_job_that_takes_more_than_it_has_to",
    ),
    "tests/quota_plane/test_resized_pods.py": ("test_a_pod_that_is_resized_back_in_time_stays",),
    "tests/simulation/test_harm_budgets.py": ("test_the_report_has_the_sentence",),
    "tests/units/test_bounded_yaml.py": (
        "test_aliases_of_usual_size_and_long_documents_without_are_read",
    ),
    "tests/quota/test_loops.py": ("test_with_held_pairs_everything_settles",),
    "tests/scheduling/test_notice.py": (
        "test_wherever_a_process_dies_a_unit_goes_once_it_has_saved_or_at_its_deadline",
    ),
    "tests/simulation/test_replay.py": (
        "test_where_making_way_takes_time_fair_sharing_does_not_go_round_at_one_instant",
    ),
}
_WHOLLY_LEFT_OUT: Final = tuple(f"{each.rstrip('/')}/" for each in (*THOROUGH, *SLOW))
_OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors",
        metavar="DIR",
        help="conformance vectors, a folder per plane (default: ../shared/conformance)",
    )
    parser.addoption(
        "--scenarios",
        metavar="DIR",
        help="scenario files to play (default: ../shared/conformance/idle/scenarios)",
    )
    parser.addoption(
        "--golden",
        metavar="DIR",
        help="recorded answers of kubectl, a file per group (default: ../shared/observed/kubectl)",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread of which the marker expression runs nothing: reading them takes time."""
    if "not thorough" not in str(config.option.markexpr):
        return None
    below = (
        collection_path.relative_to(config.rootpath).as_posix()
        if collection_path.is_relative_to(config.rootpath)
        else ""
    )
    return True if below and f"{below}/".startswith(_WHOLLY_LEFT_OUT) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    thorough = Counter[str]()
    for item in items:
        if is_slow_variant(item.nodeid):
            item.own_markers[:] = [each for each in item.own_markers if each.name != "thorough"]
            item.add_marker(pytest.mark.slow)
        elif item.nodeid.startswith(SLOW) and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.slow)
        slow = item.get_closest_marker("slow") is not None
        if slow and item.get_closest_marker("thorough") is not None:
            raise pytest.UsageError(f"{item.nodeid} is marked both slow and thorough: choose one")
        file, _, name = item.nodeid.partition("::")
        named = name.partition("[")[0] in THOROUGH_TESTS.get(file, ())
        if (named or item.nodeid.startswith(THOROUGH)) and not slow:
            item.add_marker(pytest.mark.thorough)
        test = item.nodeid.partition("[")[0]
        if test in MOST_VARIANTS and item.get_closest_marker("thorough") is not None:
            thorough[test] += 1
            if thorough[test] > MOST_VARIANTS[test]:
                item.own_markers[:] = [each for each in item.own_markers if each.name != "thorough"]
                item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    target = os.environ.get("REPRIEVE_TEST_REPORT")
    if not target:
        return
    with Path(target).open("w", encoding="utf-8") as file:
        for outcome in _OUTCOMES:
            for report in terminalreporter.getreports(outcome):
                reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
                line = {
                    "id": report.nodeid,
                    "outcome": outcome,
                    "reason": reason.removeprefix("Skipped: "),
                    "seconds": round(report.duration, 2),
                }
                file.write(json.dumps(line) + "\n")


#: Seldom enough to cost little, often enough for thousands of tests in one process.
_COLLECTING: Final = (5_000, 10, 20)
gc.set_threshold(*_COLLECTING)


_OPERATORS: Final = count(1)
_TOGETHER: Final = 40


def pytest_collection_finish() -> None:
    # Modules and tests stay: operators that start collect all that is not hidden.
    gc.freeze()


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    """Collect as before a test in which an operator ran; what it hid, once after several tests."""
    yield
    if gc.get_threshold() == _COLLECTING:
        return
    gc.set_threshold(*_COLLECTING)
    if next(_OPERATORS) % _TOGETHER == 0:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def rights_of_the_chart() -> Iterator[None]:
    """Fail where an operator asks an embedded cluster for what no option of the chart grants."""
    yield from comparing_rights()
