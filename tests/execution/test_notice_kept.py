"""The promise of notice in the manner of each plane: pods that lie, die and speak late, and deaths.

Plans are carried out by the real book, executor and notices. Pods say whatever comes to them, at
any time, more than once and in any order; the process dies before or after random writes, and the
next one takes over some time later. When somebody was evicted is counted from the writes that the
server stored, never from what the process believes. A unit is evicted no earlier than

    min(when all of its speakers had saved or ended, the last deadline that it was told)

and at most five seconds later than it may be, downtime aside; what a pod was told never comes
earlier, under one id; a plan whose preemptor left evicts nobody who was not released before; and
every plan ends, whoever died.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import parse_instant
from reprieve.api.reprieve import Preemption, Victim
from reprieve.engine.notice.granting import Grant
from reprieve.execution.accounts.notice_objects import PreemptionNotices
from reprieve.execution.executor import Executor
from reprieve.execution.letting_save import Depth, LettingSave
from reprieve.execution.notices import Member, Notices
from reprieve.telemetry.metrics import Metrics
from tests.execution.test_executor import PLANES, Death, Plane, Site, When
from tests.kube.fakes import FakeAnswer
from tests.scheduling.memory import Target

_KIND = "preemptions.reprieve.dev"
_LATE = 5
_LONGEST = 400  # seconds in which every story has ended
SEEDS = range(100)


@dataclass
class Pod:
    """A pod and what it does: seconds, and what, by time; `heard`: ids and deadlines told to it."""

    uid: str
    speaks: bool
    acts: list[tuple[int, str]]
    ended: bool = False
    saved: int | None = None
    heard: list[tuple[str, int]] = field(default_factory=list)

    @property
    def done(self) -> int | None:
        """When it had saved or ended, in nanoseconds."""
        return self.saved


class Telling(Site):
    """A site whose plans give notice, and everything that befalls one of them."""

    def __init__(self, plane: Plane, random: Random) -> None:
        self.random = random
        self.pods: dict[str, list[Pod]] = {}
        self.evicted_at: dict[str, int] = {}
        self.writes: list[str] = []
        self.deaths: list[str] = []
        self.dies_at: set[int] = set()
        self.dead = False
        self.down = 0
        self.wanted = True
        self.seen: Counter[str] = Counter()
        super().__init__(plane)
        self.world.hook = self._on_victim
        self.api.before = lambda verb, where: self._on_record(When.BEFORE, verb, where)
        self.api.after = lambda verb, where: self._on_record(When.STORED, verb, where)
        self.stage = random.choice(list(When))

    def start(self) -> None:
        super().start()
        self.dead = False
        self.notices = Notices(self.clock, Metrics())
        self.notices.expect("quota")
        audience = cast("Any", self)
        self.executor = Executor[str](
            self.book,
            self.victims,
            self.clock,
            self._spawn,
            saving=LettingSave(self.notices, audience, self.clock),
        )
        shown = PreemptionNotices(
            self.notices,
            self.client,
            self.fence,
            self.clock,
            cast("Any", SimpleNamespace(event=lambda *_, **__: None)),
            _preemptor,
        )
        self._spawn(shown.run())

    # What the plane says of the victims that have notice.

    keeps = False

    def members(self, victim: Victim) -> Sequence[Member] | None:
        uid = victim.root.uid
        if uid in self.world.left:
            return None
        return [Member(pod.uid, pod.speaks, pod.ended) for pod in self.pods[uid]]

    def keep(self, victims: Sequence[Victim]) -> str:
        return ""

    def why_pardoned(self, intent: Preemption, depth: Depth) -> str:
        return "" if self.wanted else "the preemptor is gone"

    # Deaths.

    def _on_victim(self, stage: When, verb: str, uid: str) -> None:
        gone = "mark" if self.plane.by_mark else "evict"
        if stage is When.STORED and verb == gone and not self.dead:
            self.evicted_at.setdefault(uid, self.clock.wall())
        self._count(stage, verb)

    def _on_record(self, stage: When, verb: str, where: Target) -> FakeAnswer | None:
        self._count(stage, f"{verb} {where.kind.partition('.')[0]}")
        return None

    def _count(self, stage: When, what: str) -> None:
        if self.dead:
            raise Death
        if stage is self.stage:
            self.writes.append(what)
            if len(self.writes) in self.dies_at:
                self.deaths.append(what)
                self.dead = True
                raise Death

    async def second(self) -> None:
        """Let a second pass; a process that has died is followed by the next one, some time on."""
        await self.clock.advance(SECOND)
        for task in [each for each in self.tasks if each.done()]:
            self.tasks.remove(task)
            if not self.dead:
                task.result()
            else:
                task.exception()
        if self.dead:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            self.tasks.clear()
            if self.down:
                self.down -= 1
                self.seen["seconds down"] += 1
                return
            self.down = self.random.choice((0, 1, 20))
            self.start()
            self._spawn(self._taken_over())
        else:
            self._spawn(self._reconciled())

    async def _taken_over(self) -> None:
        await self.executor.recover()
        self.notices.inherited("quota")

    async def _reconciled(self) -> None:
        if self.notices.ready:
            await self.executor.reconcile()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))


async def _preemptor(intent: Preemption, namespace: str) -> str:
    return "Pod/high"


def pods_of(random: Random, time: int, extension: int) -> list[Pod]:
    """Return the pods of a victim, and what they will do."""

    def acts() -> list[tuple[int, str]]:
        words = ("saving", "extending", "saved", "stranger", "dies")
        weights = (2, 5, 3, 2, 1)
        found = [
            (random.randint(0, time + extension + 20), random.choices(words, weights)[0])
            for _ in range(random.choice((0, 1, 2, 4)))
        ]
        return sorted(found)

    several = random.choice((1, 1, 2))
    speaker = random.randrange(several) if random.random() < 0.3 else -1
    tag = random.getrandbits(32)
    return [Pod(f"{tag}-{i}", i == speaker, acts()) for i in range(several)]


def say(site: Telling, unit: str, pod: Pod, word: str, extension: int) -> None:
    """Let a pod say a word to the process, as far as one answers."""
    if word == "dies":
        if not pod.ended:
            pod.ended = True
            pod.saved = pod.saved or site.clock.wall()
        return
    if site.dead or not site.notices.ready or pod.ended:
        return
    found = site.notices.of_pod(pod.uid)
    if found is None:
        return
    if word == "stranger":
        others = [each.uid for unit_, all_ in site.pods.items() for each in all_ if unit_ != unit]
        for other in others:
            mine = site.notices.find(found.id, other)
            assert mine is None or site.plane.unit, "nobody answers for others"
        return
    site.seen[word] += 1
    if word == "saved":
        site.notices.saved(found, pod.uid)
        all_ = [each for pods in site.pods.values() for each in pods]
        if pod in speakers_of(all_ if site.plane.unit else site.pods[unit]):
            pod.saved = pod.saved or site.clock.wall()
        return
    expected = site.clock.wall() + extension * SECOND if word == "extending" else 0
    site.notices.saving(found, pod.uid, expected)


def listen(site: Telling) -> None:
    """Let each pod look what it is told; that never comes earlier, and is one notice."""
    if site.dead or not site.notices.ready:
        return
    for pods in site.pods.values():
        for pod in pods:
            found = site.notices.of_pod(pod.uid)
            if found is None or found.notice.final or pod.ended:
                continue
            told = (found.id, found.notice.due)
            site.seen["extended"] += told[1] > found.notice.deadline
            if pod.heard:
                assert pod.heard[-1][0] == told[0], "one notice"
                assert told[1] >= pod.heard[-1][1], "a deadline that was told comes no earlier"
            pod.heard.append(told)


def judged(site: Telling, record: dict[str, Any]) -> None:
    """Assert the promise for everybody who was evicted."""
    deadline = parse_instant(record["spec"]["victims"][0]["notice"]["deadline"])
    # A new leader lets the last request of its predecessor time out before it goes on.
    slack = (_LATE + site.seen["seconds down"] + 6 * len(site.deaths)) * SECOND
    latest = 0
    units = [list(site.pods)] if site.plane.unit else [[uid] for uid in site.pods]
    for unit in units:
        pods = [pod for uid in unit for pod in site.pods[uid]]
        done = [each.done for each in speakers_of(pods)]
        saved = None if None in done else max(each for each in done if each is not None)
        due = max([deadline, *(told for pod in pods for _, told in pod.heard)])
        may_go = due if saved is None else min(saved, due)
        # What was said to a process that has died is known to the next one if it was recorded.
        recorded = set(record["status"].get("savedPods", ()))
        known = all(each.ended or each.uid in recorded for each in speakers_of(pods))
        goes = may_go if known or not site.deaths else due
        site.seen["recorded, and a death"] += bool(site.deaths and known and may_go < due)
        latest = max(latest, goes)
        for at in (site.evicted_at[uid] for uid in unit if uid in site.evicted_at):
            early = saved is not None and at < deadline
            site.seen["evicted early" if early else "evicted late"] += 1
            assert at >= may_go, (unit, at, may_go)
            if site.victims.manner.each_for_itself:
                assert at <= goes + slack, "it goes when it may"
    for at in site.evicted_at.values():
        assert at <= latest + slack, "nobody waits for longer than the last of the plan"


def speakers_of(pods: list[Pod]) -> list[Pod]:
    """Return the pods of a unit that answer for it."""
    return [each for each in pods if each.speaks] or pods


async def played(name: str, seed: int) -> Telling:
    """Play one story to its end, and judge it."""
    random = Random(f"{name}/{seed}")
    site = Telling(PLANES[name], random)
    time, extension = random.choice((10, 30, 60)), random.choice((0, 20, 90))
    plan = site.plan()
    site.pods = {each.root.uid: pods_of(random, time, extension) for each in plan.victims}
    if random.random() < 0.4:  # all of them save, sooner or later
        for pod in (pod for pods in site.pods.values() for pod in pods):
            pod.acts = sorted([*pod.acts, (random.randint(2, time + extension), "saved")])
    leaves = random.randint(0, time + 20) if random.random() < 0.25 else None
    site.dies_at = {random.randint(1, 30) for _ in range(random.choice((0, 1, 1, 2, 3)))}
    grants = [Grant(time * SECOND, extension * SECOND)] * len(plan.victims)
    site.notices.inherited("quota")

    async def begun() -> None:
        await site.executor.carry(await site.book.write(plan, notices=grants))

    site._spawn(begun())
    left_at = None
    for second in range(_LONGEST):
        if leaves is not None and second == leaves:
            site.wanted = site.world.needed = False
            left_at = site.clock.wall()
        for unit, pods in site.pods.items():
            for pod in pods:
                while pod.acts and pod.acts[0][0] <= second:
                    say(site, unit, pod, pod.acts.pop(0)[1], extension)
        listen(site)
        await site.second()
        records = list(site.api.objects[_KIND].values())
        over = [each.get("status", {}).get("phase") for each in records]
        if second > 5 and not site.dead and set(over) <= {"Completed", "Abandoned"}:
            break
    else:
        raise AssertionError(f"it never ends: {site.records()}")
    site.dead = True
    for task in site.tasks:
        task.cancel()
    await asyncio.gather(*site.tasks, return_exceptions=True)
    ended(site, records, left_at)
    return site


def ended(site: Telling, records: list[dict[str, Any]], left_at: int | None) -> None:
    """Assert what holds at the end of a story."""
    assert set(site.world.evictions.values()) <= {1}, "somebody was evicted twice"
    if not records:  # the process died before the record was stored: nobody was told
        assert not site.evicted_at and not any(p.heard for ps in site.pods.values() for p in ps)
        site.seen["no record"] += 1
        return
    (record,) = records
    judged(site, record)
    if left_at is None:
        assert len(site.world.left) == len(site.pods), "the preemptor waits for ever"
    elif not site.evicted_at or min(site.evicted_at.values()) > left_at + 2 * SECOND:
        assert not site.evicted_at, "somebody goes for a preemptor that is gone"
        site.seen["pardoned"] += 1


@pytest.mark.parametrize("name", PLANES)
async def test_no_unit_goes_before_it_saved_or_its_deadline_whatever_pods_say_and_whoever_dies(
    name: str,
) -> None:
    seen, deaths = Counter[str](), Counter[str]()
    for seed in SEEDS:
        try:
            site = await played(name, seed)
        except AssertionError as failure:
            raise AssertionError(f"{name}, seed {seed}: {failure}") from failure
        seen += site.seen
        deaths.update(site.deaths)
    print(f"\n{name}: {dict(seen)}\ndeaths: {dict(deaths)}")
    for what in ("evicted early", "evicted late", "pardoned", "extended"):
        assert seen[what] >= 5, (what, seen)
    assert seen["recorded, and a death"] >= 1, seen
    kinds = {"post preemptions", "patch preemptions", "post preemptionnotices"}
    assert deaths.keys() >= kinds | {"mark" if site.plane.by_mark else "evict"}, deaths


async def test_a_report_is_answered_at_once_when_the_others_have_saved_meanwhile() -> None:
    """It is no longer recorded then: the plan goes on."""
    site = Telling(PLANES["units"], Random("settled"))
    plan = site.plan()
    site.pods = {each.root.uid: [Pod(f"pod-{each.root.uid}", False, [])] for each in plan.victims}
    grants = [Grant(60 * SECOND, 0)] * len(plan.victims)
    intent = await site.book.write(plan, notices=grants)
    site.notices.begin(intent, site.members)
    first, *others = [pod.uid for pods in site.pods.values() for pod in pods]
    assert others
    found = site.notices.of_pod(first)
    assert found is not None

    site.notices.saved(found, first)
    answering = asyncio.ensure_future(site.notices.settled(found, first, 2 * SECOND))
    await asyncio.sleep(0)
    assert not answering.done()
    for uid in others:
        mine = site.notices.of_pod(uid)
        assert mine is not None
        site.notices.saved(mine, uid)
    for _ in range(5):
        await asyncio.sleep(0)
    assert answering.done()
