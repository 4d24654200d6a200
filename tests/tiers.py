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
            "test_a_process_killed_after_a_write_is_finished_by_the_next": ("22", "24", "26", "29")
        },
        "tests/crash/test_stop.py": {
            "test_a_deposed_process_adds_nothing_to_what_its_successor_did": ("26", "29")
        },
        "tests/engine/test_properties.py": {"": ("many",)},
        "tests/frontend/browser/test_bench.py": {
            "test_the_quick_mode_sees_every_change_in_the_document": ("",)
        },
        "tests/simulation/test_validation.py": {
            "test_a_study_through_the_real_plane_has_the_same_victims_and_admissions": ("",)
        },
        "tests/frontend/browser/test_accessibility.py": {
            "test_nothing_keeps_people_out_of_any_page": ("light-empty", "dark-empty")
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
        "tests/bench/test_idle.py::test_the_quick_mode_checks_its_results_and_prints_json": 1,
        "tests/chart/test_pairwise.py::test_a_combination_renders_and_is_understood": 8,
        "tests/chart/test_rendering.py::test_a_value_that_is_not_accepted_is_named": 8,
        "tests/chart/test_rendering.py::test_each_value_becomes_its_variable": 3,
        "tests/cli/test_unreadable_files.py::test_an_unreadable_file_is_named_in_one_line": 8,
        "tests/conformance/test_quota_vectors.py::test_shifted_copy": 200,
        "tests/conformance/test_topology_stories.py::"
        "test_with_profile_best_every_victim_helps_who_it_goes_for": 2,
        "tests/conformance/test_workload_aware_vectors.py::test_with_the_second_reprieve_pass": 60,
        "tests/controllers/test_solve.py::"
        "test_the_process_is_given_up_when_four_decisions_are_left_at_the_same_time": 1,
        "tests/controllers/test_solve.py::"
        "test_turns_in_which_all_is_collected_do_not_count_but_for_eight": 2,
        "tests/disruptions/test_properties.py::"
        "test_no_cycle_of_equals_turns_more_than_the_limit_and_every_hold_ends": 1,
        "tests/disruptions/test_server.py::"
        "test_over_hours_nobody_displaces_in_vain_or_after_crashes_where_all_are_held": 1,
        "tests/engine/scheduling/test_floors.py::"
        "test_plans_are_feasible_deterministic_and_leave_nobody_who_could_stay": 1,
        "tests/engine/scheduling/test_harm.py::"
        "test_plans_are_feasible_irreducible_and_the_same_again": 2,
        "tests/engine/scheduling/test_min_runtime_agreement.py::"
        "test_engine_and_oracle_agree_on_who_is_spared": 2,
        "tests/engine/scheduling/test_node_bounds.py::"
        "test_the_best_of_some_nodes_is_the_best_of_all": 1,
        "tests/engine/scheduling/test_paths.py::"
        "test_all_nodes_at_once_gives_the_candidates_of_one_after_the_other": 2,
        "tests/engine/scheduling/test_paths.py::test_trackers_reprieve_whom_all_filters_would": 2,
        "tests/engine/scheduling/test_paths.py::"
        "test_trackers_reprieve_whom_all_filters_would_while_claims_are_simulated": 1,
        "tests/engine/scheduling/test_promises.py::"
        "test_the_second_pass_spares_and_leaves_nobody_who_could_return": 1,
        "tests/engine/scheduling/test_reach.py::"
        "test_harm_breaks_no_budget_and_takes_no_priority_that_the_kep_would_not": 2,
        "tests/engine/scheduling/test_sessions.py::test_a_session_decides_as_new_snapshots_do": 1,
        "tests/engine/scores/test_following.py::"
        "test_scores_that_follow_pods_equal_those_compiled_afresh": 1,
        "tests/engine/test_properties.py::"
        "test_every_plan_is_irreducible_or_says_that_it_may_not_be": 2,
        "tests/engine/test_properties.py::"
        "test_victim_sets_are_disjoint_and_leave_out_what_is_claimed": 1,
        "tests/execution/test_notice_kept.py::"
        "test_no_unit_goes_before_it_saved_or_its_deadline_whatever_pods_say_and_whoever_dies": 2,
        "tests/execution/test_parts.py::"
        "test_no_object_exceeds_one_mebibyte_and_no_victim_150_bytes": 5,
        "tests/gangs/test_odd_gangs.py::"
        "test_no_gang_however_odd_stops_the_plane_or_overfills_a_node": 6,
        "tests/hostile/test_wide_objects.py::"
        "test_a_job_is_read_in_steps_in_proportion_to_each_of_its_lists": 6,
        "tests/idle/test_held_by_owners.py::"
        "test_who_keeps_his_idle_work_from_ending_holds_no_demand_up": 2,
        "tests/idle/test_metrics.py::"
        "test_a_sample_of_another_time_by_its_own_clock_makes_nobody_idle": 3,
        "tests/idle/test_preemption_delay.py::"
        "test_the_class_or_queue_of_the_demand_says_otherwise": 1,
        "tests/idle/test_submitted_again.py::"
        "test_two_that_come_again_displace_each_other_until_the_loop_is_held": 2,
        "tests/idle/test_wakers.py::"
        "test_an_operator_that_decides_about_everything_anew_finds_nothing_to_do": 1,
        "tests/idle/test_wakers.py::"
        "test_it_finds_nothing_where_others_edit_gpu_workloads_and_queue_jobs": 1,
        "tests/integration/test_deletion.py::"
        "test_a_root_that_was_made_again_under_the_same_name_survives": 1,
        "tests/integration/test_quota_plan.py::"
        "test_queued_jobs_do_what_was_planned_and_what_waits_starts_when_changed_as_told": 1,
        "tests/integration/test_restart.py::test_a_restart_keeps_the_idle_timer": 1,
        "tests/integration/test_scenarios.py::test_a_scenario_holds_on_a_real_api_server": 2,
        "tests/kubectl/test_golden.py::test_embedded_cluster": 120,
        "tests/oracle/scheduling/test_clusters.py::test_a_fault_of_the_rules_shows": 1,
        "tests/quota/test_cheapest.py::test_no_set_that_may_go_costs_less": 1,
        "tests/quota_plane/test_clock_steps.py::"
        "test_work_runs_as_long_as_it_may_whatever_the_clock_is_set_to": 1,
        "tests/quota_plane/test_notice.py::"
        "test_who_has_not_been_released_stays_when_the_plan_ends": 1,
        "tests/quota_plane/test_refused_evictions.py::"
        "test_where_nobody_else_is_the_refused_one_is_tried_again_ever_more_seldom": 1,
        "tests/quota_plane/test_remaining_pods.py::"
        "test_its_quota_is_free_when_its_pods_are_gone": 4,
        "tests/quota_plane/test_remaining_pods.py::"
        "test_pods_of_objects_that_its_controller_made_hold_its_quota": 2,
        "tests/quota_plane/test_resized_pods.py::test_pods_that_their_job_releases_are_ended": 1,
        "tests/quota_plane/test_resized_pods.py::"
        "test_pods_that_were_resized_while_no_webhook_answered_are_ended": 1,
        "tests/quota_plane/test_wakers.py::"
        "test_a_plane_that_decides_about_everything_anew_finds_nothing_to_do": 1,
        "tests/quota_plane/test_wakers_of_shares.py::"
        "test_a_plane_that_decides_about_places_anew_finds_nothing_to_do": 1,
        "tests/quota_plane/test_wakers_of_shares.py::"
        "test_a_plane_that_decides_about_shares_anew_finds_nothing_to_do": 2,
        "tests/scenarios/test_scenarios.py::test_own_scenario": 4,
        "tests/scenarios/test_scenarios.py::test_scenario": 8,
        "tests/scenarios/test_up.py::test_a_scheduler_configuration_of_a_scenario_is_in_force": 1,
        "tests/scheduling/crash/test_every_write.py::"
        "test_a_death_at_any_write_is_made_good_by_the_next_process": 2,
        "tests/scheduling/crash/test_kill_between_deletions.py::"
        "test_a_process_killed_between_two_deletions_leaves_no_part_of_a_unit": 1,
        "tests/scheduling/faults/test_api_server_away.py::"
        "test_the_process_goes_on_with_its_plan": 4,
        "tests/scheduling/test_requested_evictions.py::"
        "test_heartbeats_come_each_minute_while_a_pod_saves_whatever_the_clock_is_set_to": 1,
        "tests/scheduling/test_set_aside.py::test_a_plugin_that_never_answers_costs_one_gang": 1,
        "tests/scheduling/test_wakers_of_devices.py::"
        "test_a_plane_that_decides_about_devices_anew_finds_nothing_to_do": 3,
        "tests/scheduling/test_wakers_of_devices.py::"
        "test_a_plane_that_decides_about_trees_anew_finds_nothing_to_do": 3,
        "tests/scheduling/test_walkthrough.py::test_preemption": 1,
        "tests/simulation/test_refusals.py::test_decisions_are_the_same_without_it": 4,
        "tests/simulation/test_shards.py::test_a_study_that_is_killed_leaves_no_processes": 1,
        "tests/simulation/test_shards.py::test_shards_merged_are_the_study_in_one_piece": 2,
        "tests/telemetry/test_record.py::"
        "test_deciding_the_stored_input_again_gives_the_same_bytes": 1,
        "tests/together/test_disturbed_racks.py::"
        "test_nobody_goes_twice_or_in_vain_over_random_disturbed_plans": 1,
        "tests/together/test_disturbed_racks.py::test_two_plans_for_racks_outlive_the_process": 1,
        "tests/together/test_granted_reads.py::test_the_chart_grants_what_is_listed_and_watched": 6,
        "tests/together/test_one_demand.py::test_a_queue_waits_for_idle_work_that_ends_slowly": 1,
        "tests/together/test_one_demand.py::"
        "test_idle_work_goes_before_a_queue_takes_quota_back_for_pods_without_an_owner": 1,
        "tests/together/test_one_demand.py::"
        "test_idle_work_goes_for_the_demand_that_gets_its_room": 1,
        "tests/together/test_one_demand.py::"
        "test_idle_work_is_evicted_for_the_quota_that_queued_pods_without_an_owner_lack": 1,
        "tests/together/test_one_demand.py::"
        "test_no_idle_work_is_evicted_for_quota_that_an_earlier_job_would_take": 1,
        "tests/together/test_returns.py::"
        "test_idle_work_that_a_queue_could_preempt_stays_for_the_return_of_another_victim": 1,
        "tests/walkthrough/test_quota_guide.py::"
        "test_a_higher_priority_evicts_in_one_queue_and_waits_in_the_other": 1,
        "tests/whatif/test_again.py::test_asked_again_or_anew_the_answers_are_the_same": 5,
        "tests/whatif/test_command.py::"
        "test_a_wrong_value_without_a_server_is_one_line_and_exit_code_2": 2,
        "tests/whatif/test_kinds.py::test_a_kind_starts_makes_way_and_has_its_pods": 8,
        "tests/whatif/test_kinds.py::"
        "test_with_the_quota_plane_alone_a_kind_starts_and_makes_way": 6,
        "tests/whatif/test_new_names.py::"
        "test_a_pod_may_name_a_class_that_the_same_file_creates_before_it": 1,
        "tests/whatif/test_priority_fix.py::"
        "test_the_lowest_class_that_helps_is_named_and_then_it_starts": 1,
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
