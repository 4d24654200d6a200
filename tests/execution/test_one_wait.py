"""A plan whose units are released one by one has one wait: a fault ends it, and the plan stalls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from reprieve.api.reprieve import (
    IntentPhase,
    Metadata,
    ObjectRef,
    Preemption,
    PreemptionSpec,
    PreemptionStatus,
    Proof,
    Victim,
)
from reprieve.execution.executor import Executor
from tests.execution.test_executor import PLANES, Fakes, Site


class Faulty(Fakes):
    """A fault of ours shows as soon as a unit is released."""

    def gets_notice(self, victim: Victim) -> bool:
        raise RuntimeError("a fault of ours")


class Saving:
    """All victims have saved at once."""

    def __init__(self) -> None:
        self.waited_on = False

    def losses(self, intent: Preemption) -> dict[str, int]:
        return {}

    async def wait(
        self,
        intent: Preemption,
        extend: object,
        release: Callable[[Sequence[Victim]], Awaitable[Any]],
    ) -> str:
        await release(intent.spec.victims)
        self.waited_on = True
        return ""


def told() -> Preemption:
    ref = ObjectRef("v1", "Pod", "old", "uid-old", "ns")
    victim = Victim(subject=ref, root=ref, amounts={}, rule="Priority")
    spec = PreemptionSpec("scheduling", "plan", 1, Proof("Nodes"), [victim], "")
    return Preemption(Metadata("plan", "ns"), spec, PreemptionStatus(IntentPhase.NOTICED))


async def test_a_fault_while_a_unit_is_released_ends_the_wait() -> None:
    site, saving = Site(PLANES["quota"]), Saving()
    executor = Executor[str](
        site.book,
        Faulty(site.world, site.plane),
        site.clock,
        lambda work: work.close(),
        saving=cast("Any", saving),
    )

    each = await executor.mark(told())

    assert (each.stalled, each.busy) == (True, False)
    assert not saving.waited_on, "the plan is resumed beside a wait that goes on"
    assert site.world.left == {}
