"""`python -m tests.scheduling.crash.broken_rule ...` is `reprieve` without one of its rules.

`BROKEN_RULE` names the rule. What holds each of them is played with processes that are killed
(`test_churn_of_processes`) or stand still (`test_leaders_that_go_on`), which has to notice that it
is gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final
from unittest.mock import patch

from reprieve.api.reprieve import Preemption, Victim, VictimState
from reprieve.cli.main import main
from reprieve.engine.plan import Plan
from reprieve.execution.fence import Fence
from reprieve.execution.pod_victims import PodVictims
from reprieve.execution.records.book import Book, Recovered
from reprieve.execution.victims import Reading, VictimResult
from reprieve.kube.bodies import Json
from reprieve.kube.errors import ApiError
from reprieve.kube.resource import PODS

__all__ = ["FENCE", "RULES"]

_write, _recover = Book.write, Book.recover
_read, _delete = PodVictims.read, PodVictims._delete


def victims_go_before_the_record() -> None:
    async def write(self: Book, plan: Plan, **given: Any) -> Preemption:
        for victim in plan.victims:
            root = victim.root
            try:
                await self._client.delete(PODS, root.namespace, root.name, uid=root.uid)
            except ApiError:
                continue
        return await _write(self, plan, **given)

    patch.object(Book, "write", write).start()


def nobody_takes_over_what_is_open() -> None:
    async def recover(self: Book) -> Recovered:
        return Recovered((await _recover(self)).records, ())

    patch.object(Book, "recover", recover).start()


def every_record_calls_its_victims_evicted() -> None:
    async def read(
        self: PodVictims, intent: Preemption, victim: Victim, *, elsewhere: bool
    ) -> Reading[Json]:
        return await _read(self, intent, victim, elsewhere=False)

    def found_gone(*ignored: object) -> VictimResult:
        return VictimResult(VictimState.EVICTED)

    patch.object(PodVictims, "read", read).start()
    patch.object(PodVictims, "_found_gone", found_gone).start()


def each_victim_is_deleted_twice() -> None:
    async def delete(self: PodVictims, asked: tuple[str, str], pod: Json) -> None:
        await _delete(self, asked, pod)
        metadata = pod["metadata"]
        where = metadata["namespace"], metadata["name"]
        await self._writer.delete(PODS, *where, uid=metadata["uid"])

    patch.object(PodVictims, "_delete", delete).start()


def the_fence_is_open_without_a_lease() -> None:
    patch.object(Fence, "open", property(lambda self: True)).start()


#: The rule that a leader that goes on keeps, and what the test of it says.
FENCE: Final = "fence"
#: What breaks each rule that processes that are killed keep, and what the test says of it.
RULES: Final[Mapping[str, tuple[Callable[[], None], str]]] = {
    "record first": (victims_go_before_the_record, "without a record|twice|differ"),
    "take over": (nobody_takes_over_what_is_open, "every record is closed"),
    "one record": (every_record_calls_its_victims_evicted, "in two records"),
    "once": (each_victim_is_deleted_twice, "deleted twice"),
}

if __name__ == "__main__":
    broken = os.environ["BROKEN_RULE"]
    (the_fence_is_open_without_a_lease if broken == FENCE else RULES[broken][0])()
    main()
