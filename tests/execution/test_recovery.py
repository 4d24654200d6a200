"""Taking over and tidying intents: what is refused for one of them holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import HOUR, MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import (
    IntentPhase,
    Preemption,
    PreemptionSpec,
    Proof,
    VictimState,
    VictimStatus,
)
from reprieve.execution.fence import Fence
from reprieve.execution.records.intents import IntentLog
from reprieve.execution.recovery import Unbegun, claim_open, remove_old
from reprieve.kube.client import Client
from reprieve.kube.errors import Forbidden
from reprieve.kube.transport import Transport
from reprieve.records.plans.parts import SIZES, Sizes
from reprieve.records.victim_states import victim_states
from tests.execution.test_parts import spec, victims
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import LEASE, Held, MemoryApi, Target, Wire

_KIND = "preemptions.reprieve.dev"
_PARTS = "preemptionparts.reprieve.dev"
_NAMESPACE = "ns"


class Records:
    """An API server with records, a clock, and a log of intents on it."""

    def __init__(self, sizes: Sizes = SIZES) -> None:
        self.clock = VirtualClock()
        self.api = MemoryApi(self.clock)
        self.client = Client(Transport(Wire(self.api), self.clock, jitter=Random(7)))
        self.fence = Fence(Held(self.clock), self.clock, LEASE)
        self.log = IntentLog(self.client, _NAMESPACE, self.fence, self.clock, sizes)

    async def opened(self, name: str) -> Preemption:
        at = format_instant(self.clock.wall())
        planned = PreemptionSpec("quota", name, 1, Proof("Quota"), [], at)
        return await self.log.create(name, planned)

    def phases(self) -> dict[str, str]:
        return {
            name: (record.get("status") or {}).get("phase", "Planned")
            for (_, name), record in self.api.objects[_KIND].items()
        }


async def with_time(records: Records, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work while a clock that is turned by hand goes on."""
    task = asyncio.ensure_future(work())
    while not task.done():
        await records.clock.advance(SECOND)
    await task


def _refused(verb: str, name: str) -> Callable[[str, Target], FakeAnswer | None]:
    def hook(done: str, where: Target) -> FakeAnswer | None:
        if (done, where.kind, where.name) == (verb, _KIND, name):
            return refusal(403, "Forbidden", "a policy says so")
        return None

    return hook


async def test_an_intent_that_its_former_holder_wrote_meanwhile_is_taken_over_as_it_is() -> None:
    records = Records()
    await records.opened("a")
    listed = await records.log.list()
    stored = records.api.objects[_KIND][_NAMESPACE, "a"]
    status = {"phase": "Evicting", "owner": "former", "epoch": 0}
    records.api.put(_KIND, {**stored, "status": status})
    claimed = []

    async def claim() -> None:
        claimed.extend(await claim_open(records.log, records.fence, records.clock, listed))

    await with_time(records, claim)
    assert [(each.metadata.name, each.status.epoch) for each in claimed] == [("a", 1)]
    assert records.api.objects[_KIND][_NAMESPACE, "a"]["status"]["owner"] == "operator-1"


async def test_an_intent_that_its_former_holder_closed_meanwhile_is_left_alone() -> None:
    records = Records()
    await records.opened("a")
    listed = await records.log.list()
    stored = records.api.objects[_KIND][_NAMESPACE, "a"]
    records.api.put(_KIND, {**stored, "status": {"phase": "Completed"}})
    assert await claim_open(records.log, records.fence, records.clock, listed) == []
    assert records.phases() == {"a": "Completed"}


async def test_one_that_cannot_be_abandoned_keeps_no_other_open() -> None:
    records, unbegun = Records(), Unbegun()
    for name in ("a", "b", "c"):
        await records.opened(name)
        unbegun.add(name, records.clock.monotonic())
    records.api.before = _refused("patch", "a")
    await unbegun.settle(records.log, records.clock.monotonic())
    assert records.phases() == {"a": "Planned", "b": "Abandoned", "c": "Abandoned"}
    await records.clock.advance(2 * MINUTE)
    await unbegun.settle(records.log, records.clock.monotonic())
    before = len(records.api.writes)
    await records.clock.advance(2 * MINUTE)
    await unbegun.settle(records.log, records.clock.monotonic())
    assert len(records.api.writes) == before, "it is looked for a minute long"


async def test_records_that_cannot_be_removed_keep_no_others_and_no_parts_without_a_head() -> None:
    records = Records()
    refused = [f"refused-{number}" for number in range(20)]
    for name in (*refused, "z-1", "z-2"):
        opened = await records.log.start(await records.opened(name))
        await records.log.finish(opened, IntentPhase.COMPLETED, "", ())
    records.api.put(_PARTS, {"metadata": {"namespace": _NAMESPACE, "name": "quota-left-over"}})
    records.api.before = lambda verb, where: (
        refusal(403, "Forbidden", "a policy says so") if where.name in refused else None
    )
    now = Nanos(records.clock.wall() + 200 * HOUR)
    for _ in range(2):
        listed = await records.log.list(bare=True)
        with pytest.raises(Forbidden):
            await remove_old(records.log, "quota", listed, now, 168 * HOUR, 5_000)
        await records.clock.advance(15 * MINUTE)
    assert sorted(records.phases()) == sorted(refused)
    assert not records.api.objects[_PARTS]


@pytest.mark.parametrize("closed", [False, True])
async def test_states_by_number_are_neither_read_nor_written_where_parts_are_gone(
    closed: bool,
) -> None:
    """A number counts victims from the plan's first, who may be the one that is missing."""
    records = Records(Sizes(head=10, part=900))
    planned = spec(victims(20))
    opened = await records.log.start(await records.log.create("a", planned))
    states = [
        VictimStatus(each.root.uid, VictimState.GONE if number < 10 else VictimState.EVICTED)
        for number, each in enumerate(planned.victims)
    ]
    if closed:
        await records.log.finish(opened, IntentPhase.COMPLETED, "", states)
    first = opened.spec.parts[0]
    records.api.remove(_PARTS, _NAMESPACE, first)
    (stored,) = await records.log.list()
    torn = await records.log.whole(stored)
    left = {each.root.uid for each in torn.spec.victims}
    assert 0 < len(left) < 20
    if closed:
        wanted = {each.uid: each.state for each in states}
        found = {uid: each.state for uid, each in victim_states(torn).items()}
        assert found and found == {uid: wanted[uid] for uid in found}
    else:
        told = [each for each in states if each.uid in left]
        await records.log.finish(torn, IntentPhase.COMPLETED, "", told)
        status = records.api.objects[_KIND][_NAMESPACE, "a"]["status"]
        assert not status.get("numbersByState")
