"""Sample plugins: pure functions of a frozen state.

They read no clock, no file and nothing that changes, so that a decision can be made again from its
record (`reprieve explain`). Columns are numpy arrays by node, resource or pod slot, see
`reprieve.lab.plugins`.
"""

from __future__ import annotations

from collections.abc import Sequence

from reprieve.lab.plugins import (
    Choose,
    Code,
    Explanation,
    FeasiblePlacement,
    GroupPlacing,
    GroupRow,
    IdleWorkload,
    Pending,
    Policy,
    Preemption,
    QuotaWorkload,
    Sentence,
    Simulation,
    View,
)

URGENT = 1000


def emptiest_domain(view: View, placements: Sequence[FeasiblePlacement]) -> list[int]:
    """Prefer the topology domain with the largest share of free CPU: 0 for full, 100 for empty.

    An entry point of `reprieve.placement_scorers`. Reprieve's own score does the opposite and
    packs; racks that share power or cooling may want it this way round.
    """
    snapshot = view.snapshot
    cpu = snapshot.resources.index("cpu")
    scores = []
    for placement in placements:
        there = int(snapshot.allocatable[placement.nodes, cpu].sum())
        used = int(view.used[placement.nodes, cpu].sum())
        scores.append(100 * (there - used) // there if there > used else 0)
    return scores


def urgent_only(
    simulation: Simulation,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
    failed: GroupPlacing,
) -> Preemption:
    """Let groups below priority `URGENT` wait instead of evicting anybody.

    An entry point of `reprieve.pod_group_post_filters`, to be enabled before `DefaultPreemption`,
    which is asked for all others: "unschedulable" passes the question on, "unresolvable" ends it.
    """
    code = Code.UNSCHEDULABLE if group.priority >= URGENT else Code.UNRESOLVABLE
    return Preemption(code, Explanation(Sentence.SILENT), evaluated=False)


def fewest_devices(workload: QuotaWorkload) -> int:
    """Prefer victims that hold few GPUs, so that less work is displaced at once.

    An entry point of `reprieve.victim_orders`, to be named as `quota.victimOrder`. It decides among
    candidates of one priority, before the time of their admission.
    """
    admitted = () if workload.admission is None else workload.admission.pod_sets
    return sum(
        amount
        for pod_set in admitted
        for name, amount in pod_set.usage.items()
        if name.endswith("/gpu")
    )


def youngest_idle(workload: IdleWorkload) -> int:
    """Prefer work that has been idle for a short time, whose owner may still be at the keyboard.

    An entry point of `reprieve.victim_orders`, to be named as `gpuPreemption.victimOrder`.
    """
    return -(workload.status.idle_since or 0)
