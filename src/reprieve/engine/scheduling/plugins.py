"""PodGroupPostFilter plugins: what is tried after a group could not be placed, in configured order.

A plugin is a pure function of the frozen state: the group, its queued pods, why each node refused
each of them. Success stops with its result; unresolvable stops with a failure; unschedulable is
remembered and the next one is called; anything else, an exception included, is an error of the
whole attempt. Source: specification, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from reprieve.engine.cluster.rows import GroupRow
from reprieve.engine.cluster.snapshot import Pending
from reprieve.engine.placement.profile import Policy
from reprieve.engine.placement.reasons import Code
from reprieve.engine.placement.simulation import Simulation
from reprieve.engine.scheduling.nodes.domains import GroupPlacing
from reprieve.engine.scheduling.nodes.placing import Choose
from reprieve.engine.scheduling.outcome import Explanation, Preemption, Sentence

__all__ = ["Found", "PostFilter", "run_post_filters"]

PostFilter: TypeAlias = Callable[
    [Simulation, GroupRow, Sequence[Pending], Policy, Choose, GroupPlacing], Preemption
]


@dataclass(frozen=True, slots=True)
class Found:
    """What the plugins returned: sentences in order, and the result of the one that decided."""

    explanations: tuple[Explanation, ...]
    preemption: Preemption | None = None
    error: bool = False


def run_post_filters(
    plugins: Sequence[tuple[str, PostFilter]],
    simulation: Simulation,
    group: GroupRow,
    queued: Sequence[Pending],
    policy: Policy,
    choose: Choose,
    placing: GroupPlacing,
) -> Found:
    """Run the plugins until one decides."""
    said: list[Explanation] = []
    last: Preemption | None = None
    for name, plugin in plugins:
        before = simulation.checkpoint()
        try:
            result = plugin(simulation, group, queued, policy, choose, placing)
        except Exception as failure:
            # A plugin is external code: its fault is this group's error, no other work's.
            simulation.rollback(before)
            said_last = Explanation(Sentence.PLUGIN_FAILED, (name, str(failure)))
            return Found(
                (said_last,), Preemption(Code.ERROR, said_last, evaluated=False), error=True
            )
        if result.code is Code.ERROR:
            return Found(
                (Explanation(Sentence.PLUGIN_FAILED, (name,), (result.explanation,)),),
                result,
                error=True,
            )
        if result.code is Code.SUCCESS or result.code is Code.UNRESOLVABLE:
            return Found((result.explanation,), result)
        if result.explanation.sentence is not Sentence.SILENT:
            said.append(result.explanation)
        last = result
    return Found(tuple(said), last)
