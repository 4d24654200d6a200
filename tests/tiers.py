"""Parts of one property: the first runs with the README's line, the others in the thorough tier.

`SLOW_VARIANTS` are run by hand: other instants of a death, other seeds and other values of what the
thorough tier runs once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import pytest
from _pytest.mark import ParameterSet

__all__ = ["MOST_VARIANTS", "SLOW_VARIANTS", "first_of", "is_slow_variant"]

#: By file and test: how the parameters begin; empty for the whole test.
SLOW_VARIANTS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "tests/ci/test_how_to_add.py": {"test_a_kind_of_job_takes_four_files": ("",)},
        "tests/conformance/test_topology_perturbed.py": {
            "test_no_case_with_something_wrong_ends_in_a_fault": ("Generated_cycles_cohort",)
        },
        "tests/conformance/test_workload_aware_vectors.py": {"test_shifted_copy": ("",)},
        "tests/crash/test_kill.py": {
            "test_a_process_killed_after_a_write_is_finished_by_the_next": ("22", "24", "29")
        },
        "tests/crash/test_stop.py": {
            "test_a_deposed_process_adds_nothing_to_what_its_successor_did": ("26", "29")
        },
        "tests/engine/test_properties.py": {
            "test_all_placements_of_one_run_fit_together": ("many",),
            "test_room_made_for_a_demand_that_goes_serves_the_next_one_alike": ("many",),
            "test_the_independent_check_accepts_every_plan": ("many",),
            "test_the_sum_decides_as_the_oracle_does": ("many",),
        },
        "tests/frontend/browser/test_bench.py": {
            "test_the_quick_mode_sees_every_change_in_the_document": ("",)
        },
        "tests/simulation/test_validation.py": {
            "test_a_study_through_the_real_plane_has_the_same_victims_and_admissions": ("",)
        },
        "tests/frontend/browser/test_accessibility.py": {
            "test_nothing_keeps_people_out_of_any_page": ("light-empty",)
        },
        "tests/idle/test_configuration.py": {
            "test_a_config_file_that_cannot_be_used_ends_with_one_line": (
                "gpuPreemption: {vendors",
                "gpuPreemptions",
            ),
            "test_settings_that_cannot_be_used_end_with_one_line": (
                "environment2",
                "environment3",
                "environment6",
                "environment8",
            ),
        },
        "tests/idle/test_notice.py": {
            "test_wherever_a_process_dies_idle_work_goes_once_saved_or_at_its_deadline": ("True",)
        },
        "tests/idle/test_wakers.py": {
            "test_an_operator_that_decides_about_everything_anew_finds_nothing_to_do": (
                "1",
                "5",
                "9",
            ),
            "test_it_finds_nothing_where_others_edit_gpu_workloads_and_queue_jobs": ("102", "109"),
        },
        "tests/oracle/scheduling/test_oracle_against_vectors.py": {"": ("",)},
        "tests/oracle/topology/test_fresh_cases.py": {
            "test_assignments_and_reasons_are_those_of_the_specification_in_many_cases": ("",)
        },
        "tests/quota_plane/test_lost_work.py": {
            "test_what_is_saved_outlives_a_death_at_any_write": ("before",)
        },
        "tests/quota_plane/test_notice.py": {
            "test_wherever_a_process_dies_a_workload_goes_once_saved_or_at_its_deadline": (
                "stored",
            )
        },
        "tests/scenarios/test_up.py": {
            "test_it_serves_from_the_first_line_until_a_signal_and_leaves_nothing_running": ("2",)
        },
        "tests/scheduling/crash/test_every_write.py": {
            "test_a_death_at_any_write_is_made_good_by_the_next_process": (
                "gang-",
                "gang above its minimum-",
            ),
            "test_nobody_goes_for_a_preemptor_that_let_go_while_nobody_led": ("gang-",),
        },
        "tests/scheduling/faults/test_api_server_away.py": {
            "test_the_next_process_finishes_the_plan_and_nobody_is_held": ("3-",)
        },
        "tests/simulation/test_idle_replay.py": {
            "test_small_replays_stand_before_a_naive_judge": ("",),
            "test_with_quota_too_idle_work_makes_way_for_who_waits_for_either": ("",),
        },
        "tests/simulation/test_simulate_command.py": {
            "test_interrupted_it_ends_with_what_it_has_and_says_so": ("2",)
        },
        "tests/telemetry/test_places_record.py": {
            "test_what_is_preempted_for_places_is_preempted_again": ("many",)
        },
        "tests/whatif/test_fixes.py": {"": ("",)},
    }
)

#: By test: how many of its variants are thorough, the first ones; all others are run by hand.
MOST_VARIANTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "tests/chart/test_pairwise.py::test_a_combination_renders_and_is_understood": 8,
        "tests/cli/test_unreadable_files.py::test_an_unreadable_file_is_named_in_one_line": 8,
        "tests/conformance/test_topology_stories.py::"
        "test_with_profile_best_every_victim_helps_who_it_goes_for": 2,
        "tests/conformance/test_workload_aware_vectors.py::test_with_the_second_reprieve_pass": 60,
        "tests/conformance/test_quota_vectors.py::test_shifted_copy": 200,
        "tests/disruptions/test_properties.py::"
        "test_no_cycle_of_equals_turns_more_than_the_limit_and_every_hold_ends": 1,
        "tests/disruptions/test_server.py::"
        "test_over_hours_nobody_displaces_in_vain_or_after_crashes_where_all_are_held": 1,
        "tests/engine/scheduling/test_min_runtime_agreement.py::"
        "test_engine_and_oracle_agree_on_who_is_spared": 2,
        "tests/engine/scheduling/test_paths.py::"
        "test_all_nodes_at_once_gives_the_candidates_of_one_after_the_other": 2,
        "tests/integration/test_deletion.py::"
        "test_a_root_that_was_made_again_under_the_same_name_survives": 1,
        "tests/integration/test_quota_plan.py::"
        "test_queued_jobs_do_what_was_planned_and_what_waits_starts_when_changed_as_told": 1,
        "tests/integration/test_restart.py::test_a_restart_keeps_the_idle_timer": 1,
        "tests/integration/test_scenarios.py::test_a_scenario_holds_on_a_real_api_server": 2,
        "tests/kubectl/test_golden.py::test_embedded_cluster": 200,
        "tests/quota_plane/test_remaining_pods.py::"
        "test_its_quota_is_free_when_its_pods_are_gone": 4,
        "tests/scenarios/test_scenarios.py::test_own_scenario": 4,
        "tests/scenarios/test_scenarios.py::test_scenario": 15,
        "tests/scenarios/test_up.py::test_a_scheduler_configuration_of_a_scenario_is_in_force": 1,
        "tests/scheduling/crash/test_kill_between_deletions.py::"
        "test_a_process_killed_between_two_deletions_leaves_no_part_of_a_unit": 1,
        "tests/scheduling/faults/test_api_server_away.py::"
        "test_the_process_goes_on_with_its_plan": 4,
        "tests/scheduling/test_walkthrough.py::test_preemption": 2,
        "tests/simulation/test_refusals.py::test_decisions_are_the_same_without_it": 4,
        "tests/together/test_granted_reads.py::test_the_chart_grants_what_is_listed_and_watched": 6,
        "tests/whatif/test_again.py::test_asked_again_or_anew_the_answers_are_the_same": 5,
        "tests/whatif/test_kinds.py::test_a_kind_starts_makes_way_and_has_its_pods": 8,
        "tests/whatif/test_unjudged.py::"
        "test_of_every_kind_a_wrong_value_anywhere_is_told_in_a_line_or_does_no_harm": 6,
    }
)

T = TypeVar("T")
_THOROUGH: Final = pytest.mark.thorough
_SLOW: Final = pytest.mark.slow


def first_of(parts: Iterable[T], count: int = 1, most: int | None = None) -> list[T | ParameterSet]:
    """Return what a test is parametrized with: all but the first `count` are thorough.

    Those after the first `most` are slow.
    """
    return [
        part
        if number < count
        else pytest.param(part, marks=_SLOW if most is not None and number >= most else _THOROUGH)
        for number, part in enumerate(parts)
    ]


def is_slow_variant(nodeid: str) -> bool:
    """Return whether a test is run by hand alone, as one of several variants."""
    file, _, name = nodeid.partition("::")
    tests = SLOW_VARIANTS.get(file, {})
    test, _, parameters = name.partition("[")
    begins = tests.get(test, tests.get("", ()))
    return any(parameters.startswith(each) for each in begins)
