"""The runs of cycles.

Changes are applied, cycles run back to back in the solver thread until they change nothing, and
then everything that they decided is worked out as `effects` and carried out (`carry_out`), the next
run not waiting for the writes. A fault of ours in deciding about one workload is logged and
reported to that one (`engine.quota.cycle`); after one that concerns no single workload there is a
pause, longer each time. Source: specification of the quota plane, sections 8 and 9; the design's
"Processes and time".
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from kubeworld.units.durations import MILLISECOND, SECOND
from reprieve.engine.plan import Plane
from reprieve.engine.quota.nominated import Nominated
from reprieve.planes.common.dirty import DirtyKeys
from reprieve.planes.common.loop import DecisionLoop, Pace
from reprieve.planes.common.solve import SolverPace
from reprieve.planes.quota.context import QuotaContext, log
from reprieve.planes.quota.deciding.carry_out import CarryOut
from reprieve.planes.quota.deciding.cycles import recorded_cycles
from reprieve.planes.quota.deciding.effects import Facts, effects_of
from reprieve.planes.quota.deciding.failed_nodes import FailedNodes
from reprieve.planes.quota.deciding.held_pairs import HeldPairs
from reprieve.planes.quota.deciding.joint_side import IdleFirst
from reprieve.planes.quota.deciding.node_view import NodeView
from reprieve.planes.quota.deciding.preemptions import Preemptions
from reprieve.planes.quota.state import QuotaState
from reprieve.planes.quota.workload_status.admissions import Admissions
from reprieve.planes.quota.workload_status.explanations import Explanations
from reprieve.planes.quota.workload_status.waiting import Waiting

__all__ = ["Decisions"]

_MOST: Final = 1_000  # cycles in one run
_MOST_ADMITTED: Final = 1_000  # in one run, but that a cycle is done to its end
# What comes together is decided together, the more of it the longer that lasts.
_PACE: Final = Pace(
    held_back=SECOND // 5, gather=5 * MILLISECOND, rest=4, longest=100 * MILLISECOND
)


class Decisions:
    """Decides whenever something has changed. `held_back` states why nothing is decided now."""

    def __init__(
        self,
        context: QuotaContext,
        state: QuotaState,
        preemptions: Preemptions,
        admissions: Admissions,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        held_back: Callable[[], str],
        held_pairs: HeldPairs,
        explanations: Explanations,
        nodes: NodeView,
        waiting: Waiting,
        failed_nodes: FailedNodes,
    ) -> None:
        self._context = context
        self._state = state
        self.loop = DecisionLoop(
            Plane.QUOTA,
            context.clock,
            context.decision_limit,
            log,
            _PACE,
            decide=self._decide,
            held_back=held_back,
            before=admissions.room,
            interrupts=False,
        )
        self._number = 0
        self._nominated = Nominated()
        self._held_pairs = held_pairs
        self._nodes = nodes
        self._waiting = waiting
        self._failed_nodes = failed_nodes
        # ClusterQueues in which a workload was spared for a time, or set aside.
        self.retries: DirtyKeys[str] = DirtyKeys(context.clock)
        self.idle_first = IdleFirst(context, state, self.retries.add_at)
        self._carry_out = CarryOut(
            context,
            state,
            preemptions,
            admissions,
            spawn,
            held_pairs,
            explanations,
            nodes,
            waiting,
            failed_nodes,
            retry_at=self.retries.add_at,
            ask=self.loop.ask,
        )

    async def retry(self, cluster_queue: str) -> None:
        """Try again what was set aside in a ClusterQueue: a workload is not spared any more."""
        async with self._state.engine:
            self._state.queues.flush([cluster_queue])
        self.loop.ask()

    async def _decide(self) -> None:
        """Run cycles and carry them out.

        Raises:
            Exception: the fault that ended them early.
        """
        state, clock = self._state, self._context.clock
        async with state.engine:
            state.settle()
            if (due := self._failed_nodes.mark()) is not None:
                self.loop.ask_at(due)
            started, now = clock.monotonic(), clock.wall()
            ledger = self._held_pairs.ledger
            self._held_pairs.hold_refused(now)
            proof = self.idle_first.check(self._nodes.proof(now))
            recorded = await self.loop.solver.run(
                lambda: recorded_cycles(
                    state.holdings,
                    state.queues,
                    now,
                    _MOST,
                    _MOST_ADMITTED,
                    self._number,
                    ledger,
                    proof,
                    SolverPace(Plane.QUOTA, self._context.decision_limit.suspects),
                    self._waiting.is_sampled,
                    self._nominated,
                )
            )
            self._number += len(recorded)
            self.idle_first.ran(proof)
            seconds = (clock.monotonic() - started) / SECOND
            facts = Facts(
                state.holdings.tree, state.configuration, state.revision, seconds, _MOST_ADMITTED
            )
            self._carry_out.all(tuple(effects_of(recorded, facts)))
        for result, _ in recorded:
            if result.fault is not None:
                raise result.fault
