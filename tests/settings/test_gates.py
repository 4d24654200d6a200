"""Feature gates: names, defaults, what needs what, and who wins."""

from __future__ import annotations

import pytest

from reprieve.engine.placement.profile import Gates
from reprieve.settings.gates import GATES, Gate, gates_of_mapping, gates_of_text, resolve_gates
from reprieve.settings.idle import Notice
from reprieve.units.errors import UsageError

NAMES = (
    "GenericWorkload, TopologyAwareWorkloadScheduling, SchedulerAsyncPreemption, "
    "PodGroupPreemptionPolicy, CompositePodGroup, DRANodeAllocatableResources, "
    "PreemptionPolicyTransformer, TaintTolerationComparisonOperators, DRAWorkloadResourceClaims, "
    "SchedulerAsyncAPICalls, WorkloadAwarePreemption, GangScheduling"
)


def test_the_defaults_are_the_engines() -> None:
    assert resolve_gates() == (Gates(), ())
    assert Gates() == Gates(
        generic_workload=True,
        pod_group_preemption_policy=False,
        topology_aware=True,
        composite_pod_group=False,
        async_preemption=True,
    )


def test_the_flag_beats_the_file_and_the_last_of_a_flag_counts() -> None:
    flag = gates_of_text(
        "CompositePodGroup=true, PodGroupPreemptionPolicy=false,PodGroupPreemptionPolicy=TRUE,"
    )
    file = gates_of_mapping(
        {"CompositePodGroup": False, "SchedulerAsyncPreemption": "false", "GenericWorkload": True}
    )
    gates, notices = resolve_gates(flag, file)
    assert gates == Gates(
        composite_pod_group=True, pod_group_preemption_policy=True, async_preemption=False
    )
    assert notices == ()


def test_what_needs_generic_workload_goes_off_with_it() -> None:
    gates, notices = resolve_gates(gates_of_text("GenericWorkload=false"))
    assert gates == Gates(generic_workload=False, topology_aware=False)
    assert notices == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "GenericWorkload=false,PodGroupPreemptionPolicy=true",
            (
                "--feature-gates: PodGroupPreemptionPolicy needs GenericWorkload; accepted: "
                "PodGroupPreemptionPolicy=false, or GenericWorkload=true"
            ),
        ),
        (
            "GenericWorkload=false,TopologyAwareWorkloadScheduling=true",
            (
                "--feature-gates: TopologyAwareWorkloadScheduling needs GenericWorkload; accepted: "
                "TopologyAwareWorkloadScheduling=false, or GenericWorkload=true"
            ),
        ),
        (
            "TopologyAwareWorkloadScheduling=false,CompositePodGroup=true",
            (
                "--feature-gates: CompositePodGroup needs TopologyAwareWorkloadScheduling; "
                "accepted: CompositePodGroup=false, or TopologyAwareWorkloadScheduling=true"
            ),
        ),
        (
            "GenericWorkload=false,CompositePodGroup=true",
            (
                "--feature-gates: CompositePodGroup needs GenericWorkload and "
                "TopologyAwareWorkloadScheduling; accepted: CompositePodGroup=false, or "
                "GenericWorkload=true, TopologyAwareWorkloadScheduling=true"
            ),
        ),
        (
            "GenericWorkloads=true",
            f"--feature-gates: unknown feature gate 'GenericWorkloads'; accepted: {NAMES}",
        ),
        ("=true", f"--feature-gates: unknown feature gate ''; accepted: {NAMES}"),
        (
            "GenericWorkload",
            "--feature-gates: GenericWorkload: ''; accepted: true or false",
        ),
        (
            "GenericWorkload=yes",
            "--feature-gates: GenericWorkload: 'yes'; accepted: true or false",
        ),
    ],
)
def test_a_flag_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_gates(gates_of_text(text))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            ["GenericWorkload"],
            (
                "scheduling.featureGates: ['GenericWorkload']; accepted: a mapping from gates to "
                "true or false"
            ),
        ),
        (
            {"Gang": True},
            f"scheduling.featureGates: unknown feature gate 'Gang'; accepted: {NAMES}",
        ),
        (
            {"GenericWorkload": 1},
            "scheduling.featureGates.GenericWorkload: 1; accepted: true or false",
        ),
    ],
)
def test_a_mapping_that_cannot_be_used_is_refused(value: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        gates_of_mapping(value)
    assert str(caught.value) == message


@pytest.mark.parametrize("gate", [gate for gate in GATES if not gate.field], ids=lambda g: g.name)
@pytest.mark.parametrize("on", [True, False])
def test_a_gate_on_which_nothing_depends_is_accepted_with_a_notice(gate: Gate, on: bool) -> None:
    text = f"{gate.name}={str(on).lower()}"
    gates, notices = resolve_gates(gates_of_text(text))
    assert gates == Gates()
    assert notices == (Notice("--feature-gates", text, gate.notice),)
