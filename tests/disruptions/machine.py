"""Three planes that displace whatever they may, on one API server, with everything that befalls.

Plans go through the real records and executors, each plane in its own manner, and everything is
asked of and told to one governor; who displaces whom is arbitrary but for what each plane may do.
Work comes back as new objects, known by its owner, template, label or a weak link. What happened is
counted from what the API server was told (`audit`): the deletions of pods, and whom the records
that it stores name as their preemptor. Source: specification of disruptions, section 5.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast

from kubeworld.units.durations import HOUR, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.api.reprieve import Preemption, Victim, VictimState, VictimStatus
from reprieve.engine import plan as engine
from reprieve.engine.disruptions.governor import Governor
from reprieve.engine.disruptions.ledger import KEPT, Actor, Displacement
from reprieve.engine.disruptions.lineage import Participant, participant_of
from reprieve.engine.disruptions.questions import GovernorPolicy, Hold, Question
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.model import Workload
from reprieve.execution.carried import Carried
from reprieve.execution.executor import Executor
from reprieve.execution.records.book import Book
from reprieve.execution.victims import Manner, Marked, Reading, Standing, VictimResult
from reprieve.kube.client import Client
from reprieve.kube.errors import NotFound
from reprieve.kube.resource import PODS, PREEMPTIONS
from reprieve.kube.transport import Transport
from reprieve.planes.common.disruptions.displacements import Issued, PlaneDisplacements, Side
from reprieve.planes.quota.deciding.held_pairs import HeldPairs
from reprieve.records.displacements import stored
from reprieve.records.plans.at_stake import AtStake, Stake, lineage_of
from reprieve.telemetry.metrics import Metrics
from reprieve.units.ids import PlanId, Uid
from reprieve.units.references import Reference
from tests.disruptions.builders import identity
from tests.execution.test_executor import Death
from tests.execution.test_recovery import Records
from tests.kube.fakes import FakeAnswer
from tests.oracle import disruptions as oracle
from tests.scheduling.memory import Target, Wire

_OPERATOR: Final = "ns"
_SPACE: Final = "team"
_LINKS: Final = ("owner", "template", "label", "weak")
#: An eviction that a crash has interrupted is made within this time.
SLACK: Final = 120
MANNERS: Final = {
    Actor.IDLE: Manner(marked_at_once=1, rest_is_marked=True),
    Actor.QUOTA: Manner(all_or_nobody=False),
    Actor.SCHEDULING: Manner(last_alone=True, whole=True),
}
LAWLESS: Final = GovernorPolicy(loop_limit=0, crashes=1_000_000)


@dataclass
class Work:
    """One lineage in truth; its object says in its name which it is, and its priority."""

    name: str
    link: str
    priority: int = 0
    version: int = 0
    objects: int = 0
    participant: Participant = field(init=False)

    def come(self, now: int) -> str:
        """Come back as a new object; return its name."""
        self.objects += 1
        uid = self.pod
        self.participant = participant_of(
            identity(
                uid,
                self.name if self.link == "template" else _SPACE,
                owner={"owner": self.name, "template": ""}.get(self.link, uid),
                template=f"shape of {self.name}" if self.link in ("template", "weak") else "",
                label=self.name if self.link == "label" else "",
                created=now,
            )
        )
        return uid

    @property
    def pod(self) -> str:
        """The name of its object, which is its uid, too."""
        return f"{self.name}.{self.version}.{self.priority}.{self.objects}"


def node(pod: str) -> str:
    """Return who a pod is; another one after its priority was changed."""
    name, version, *_ = pod.split(".")
    return f"{name}#{version}"


def priority(pod: str) -> int:
    return int(pod.split(".")[2])


class PodVictims:
    """Pods that are deleted by one call, in the manner of a plane."""

    def __init__(self, client: Client, manner: Manner, there: Callable[[str], bool]) -> None:
        self._client = client
        self._manner = manner
        self._there = there

    @property
    def manner(self) -> Manner:
        return self._manner

    def gets_notice(self, victim: Victim) -> bool:
        return False

    async def stale(self, intent: Preemption, victims: Sequence[Victim]) -> str:
        return ""

    async def mark(self, intent: Preemption, victim: Victim) -> Marked[str] | VictimResult:
        there = self._there(victim.root.name)
        return Marked("") if there else VictimResult(VictimState.GONE)

    async def spare(self, intent: Preemption, victim: Victim, mark: str | None, why: str) -> None:
        return

    async def evict(
        self, intent: Preemption, victim: Victim, mark: str | None, *, again: bool
    ) -> VictimResult | None:
        try:
            await self._client.delete(PODS, _SPACE, victim.root.name, uid=victim.root.uid)
        except NotFound:
            return VictimResult(VictimState.EVICTED if again else VictimState.GONE)
        return VictimResult(VictimState.EVICTED)

    async def read(self, intent: Preemption, victim: Victim, *, elsewhere: bool) -> Reading[str]:
        if self._there(victim.root.name):
            return Reading(Standing.UNTOUCHED)
        return Reading(Standing.GONE if elsewhere else Standing.EVICTED)

    def needed(self, intent: Preemption) -> bool:
        return True

    def observe(
        self, intent: Preemption, victim: Victim, state: VictimStatus | None
    ) -> VictimResult | None:
        gone = not self._there(victim.root.name)
        return VictimResult(state.state if state else VictimState.EVICTED) if gone else None

    def served(self, intent: Preemption) -> bool:
        return True

    def held_up(self, intent: Preemption, left: Sequence[tuple[Victim, str]], since: int) -> None:
        return


class Planes:
    """One process: a book and an executor for each plane, and the governor of all."""

    def __init__(self, world: World) -> None:
        client = Client(Transport(Wire(world.api), world.clock, jitter=Random(7)))
        self.governor = Governor(world.policy)
        self.quota = HeldPairs(
            cast("Any", _quota_context(world, self.governor)), governor=self.governor
        )
        self.told = {
            plane: PlaneDisplacements(self.governor, plane)
            for plane in (Actor.IDLE, Actor.SCHEDULING)
        }
        self.books = {
            plane: Book(
                engine.Plane(plane.value), client, _OPERATOR, world.fence, world.clock, Metrics()
            )
            for plane in MANNERS
        }
        self.executors = {
            plane: Executor[str](
                book,
                PodVictims(client, MANNERS[plane], world.there),
                world.clock,
                world.spawn,
                ended=self._ended(plane),
            )
            for plane, book in self.books.items()
        }

    def _ended(self, plane: Actor) -> Callable[[Carried[str], Preemption | None], None]:
        def ended(each: Carried[str], record: Preemption | None) -> None:
            evicted = {u for u, s in each.states.items() if s.state is VictimState.EVICTED}
            if plane in self.told:
                self.told[plane].ended(each.name, evicted)

        return ended

    async def recover(self) -> None:
        """Take over what the former process left."""
        for plane, executor in self.executors.items():
            left = await executor.recover()
            records = await self.books[plane].log.all_whole(left.records)
            restore = self.quota.restore if plane is Actor.QUOTA else self.told[plane].restore
            restore(records)

    async def reconcile(self) -> None:
        for executor in self.executors.values():
            await executor.reconcile()


@dataclass
class World(Records):
    """The API server, the clock, some lineages, and the process that runs."""

    random: Random
    policy: GovernorPolicy
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__()
        self.audit: list[oracle.Row] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.dies_in = 0
        self.refused: tuple[Question, Hold] | None = None
        self.api.before = self._audited
        self.api.after = self._dying
        self.works = {name: Work(name, _LINKS[number % 4]) for number, name in enumerate("abcde")}
        for work in self.works.values():
            self._put(work, self.clock.wall() - SECOND)
        self.planes = Planes(self)

    # What the API server sees.

    def _audited(self, verb: str, where: Target) -> FakeAnswer | None:
        if (verb, where.kind) == ("delete", "pods") and self.there(where.name):
            preemptor = self._preemptor_of(where.name)
            above = priority(preemptor) - priority(where.name)
            self.seen["deleted"] += 1
            if above <= 0:
                row = (self.seconds, node(preemptor), node(where.name), above, 0, "")
                self.audit.append(row)
        return None

    def _preemptor_of(self, victim: str) -> str:
        for record in reversed(list(self.records.values())):
            if any(each["root"]["name"] == victim for each in record["spec"]["victims"]):
                return str(record["spec"]["preemptor"]["name"])
        raise AssertionError(f"{victim} is in no record")

    def _dying(self, verb: str, where: Target) -> FakeAnswer | None:
        if self.dies_in:
            self.dies_in -= 1
            if not self.dies_in:
                raise Death
        return None

    @property
    def records(self) -> dict[tuple[str, str], Any]:
        return self.api.objects[f"{PREEMPTIONS.plural}.{PREEMPTIONS.group}"]

    @property
    def seconds(self) -> int:
        return self.clock.wall() // SECOND

    def there(self, pod: str) -> bool:
        return (_SPACE, pod) in self.api.objects["pods"]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    # What happens. Each returns when everything that it began has ended.

    async def displace(self, plane: Actor, one: Work, other: Work) -> bool:
        """Let a plane displace one for the other, if the governor lets it; return whether it did.

        A scheduler displaces for a strictly higher priority alone.
        """
        above = one.priority - other.priority
        if one is other or (plane is Actor.SCHEDULING and above <= 0):
            return False
        # Objects are displaced once they are made, in a later second than who was there before.
        made = max(one.participant.created, other.participant.created)
        if made > self.clock.wall():
            await self.clock.advance(made - self.clock.wall())
        asked = self.question(plane, one, other)
        hold = self.planes.governor.hold(asked)
        if hold is not None:
            self.seen["held"] += 1
            assert hold.until > asked.now
            # Whoever asks about those alone who are known to it has asked about this one.
            known, held = (
                self.planes.governor.known_by(one.participant, asked.now),
                other.participant,
            )
            assert known is None or known & {held.lineage, held.weak, held.merged}
            self.refused = asked, hold
            return False
        self.refused = None
        await self._carry(plane, one, other, asked)
        return True

    def question(self, plane: Actor, one: Work, other: Work) -> Question:
        cause = ""
        if plane is Actor.QUOTA:
            cause = ", ".join(sorted(f"{w.name} {w.priority}" for w in (one, other)))
        above = 0 if plane is Actor.IDLE else one.priority - other.priority
        return Question(
            one.participant, other.participant, self.clock.wall(), above=above, cause=cause
        )

    async def _carry(self, plane: Actor, one: Work, other: Work, asked: Question) -> None:
        victim = self._ref(other.pod)
        plan = engine.Plan(
            PlanId(f"{plane.value}-{self.seen['plans']}"),
            engine.Plane(plane.value),
            1,
            engine.Proof(engine.ProofLevel.QUOTA),
            self._ref(one.pod),
            (engine.Victim(victim, victim, {"cpu": 1}, "rule"),),
        )
        self.seen["plans"] += 1
        self.seen[plane.value] += 1
        self.seen[other.link] += 1
        issued = self._issue(plane, plan, one, other, asked)
        stake = AtStake(lineage_of(one.participant), [Stake(lineage_of(other.participant))])

        async def work() -> None:
            intent = await self.planes.books[plane].write(
                plan, decision_input=stored(issued.displacements), at_stake=stake
            )
            if plane in self.planes.told:
                self.planes.told[plane].recorded(intent.metadata.name, issued)
            await self.planes.executors[plane].carry(intent)
            await self.planes.reconcile()

        await self._survive(work)
        if self.random.random() < 0.7:
            self.planes.governor.admitted(one.participant, self.clock.wall())
            self.seen["got it"] += 1
        self._come_back()

    def _issue(
        self, plane: Actor, plan: engine.Plan, one: Work, other: Work, asked: Question
    ) -> Issued:
        if plane is not Actor.QUOTA:
            return self.planes.told[plane].issue(
                plan, asked.now, one.participant, [Side(other.participant, above=asked.above)]
            )
        ledger = self.planes.quota.ledger
        assert isinstance(ledger, Displacements)
        preemptor, victim = (
            Workload(_SPACE, w.pod, uid=w.pod, participant=w.participant) for w in (one, other)
        )
        ledger.record(preemptor, victim, asked.now, asked.cause, above=asked.above)
        row = ledger.recorded.pop((one.pod, other.pod))
        return Issued(((row, frozenset((other.pod,))),))

    async def _survive(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this; if the process dies of it, let the next one take over."""
        try:
            await self._in_time(work)
        except (Death, BaseExceptionGroup):
            await self.restart()

    async def restart(self) -> None:
        self.dies_in = 0
        for task in self.tasks:
            task.cancel()
        self.tasks.clear()
        self.seen["restarts"] += 1
        self.planes = Planes(self)
        await self._in_time(self.planes.recover)
        await self._in_time(self.planes.reconcile)
        self._come_back()

    async def _in_time(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.ensure_future(work())
        for _ in range(SLACK):
            for _ in range(200):
                await asyncio.sleep(0)
                if task.done():
                    return task.result()
            await self.clock.advance(SECOND // 10)
        raise AssertionError("it takes too long")

    def kill_soon(self, writes: int) -> None:
        """Let the process die after so many writes."""
        self.dies_in = writes

    def relabel(self, work: Work) -> None:
        work.priority = 1 - work.priority
        work.version += 1
        self.api.remove("pods", _SPACE, work.pod)
        self._put(work, self.clock.wall() + SECOND)
        self.seen["priorities changed"] += 1

    def somebody_else(self, work: Work) -> None:
        row = Displacement(self.clock.wall(), Actor.OTHER, None, work.participant, work.pod)
        self.planes.governor.record(row)
        self.api.remove("pods", _SPACE, work.pod)
        self._come_back()
        self.seen["other actors"] += 1

    def fails(self, work: Work) -> None:
        self.planes.governor.failed(work.participant, self.clock.wall())
        self.seen["failures"] += 1

    async def wait_out(self) -> None:
        """Wait until a refusal was said to end: these rules refuse no longer."""
        if self.refused is None:
            return
        asked, hold = self.refused
        self.refused = None
        left = hold.until - self.clock.wall()
        if left > 0:
            await self.clock.advance(left)
        now = self.clock.wall()
        assert self.planes.governor.hold(replace(asked, now=now)) is None
        self.seen["waited out"] += 1

    # The bound.

    def turned(self) -> list[Any]:
        """Return where a cycle of equals turned too often, as the API server saw it."""
        limit, window = GovernorPolicy().loop_limit, HOUR // SECOND - SLACK
        recent = [row for row in self.audit if row[0] > self.seconds - 4 * window]
        return oracle.turned(recent, limit, window)

    def tidy(self) -> None:
        """Remove the records that the planes would have removed by now."""
        oldest = format_instant(Nanos(self.clock.wall() - KEPT))
        for (space, name), record in list(self.records.items()):
            closed = (record.get("status") or {}).get("phase") in ("Completed", "Abandoned")
            if closed and record["spec"]["decidedAt"] < oldest:
                self.api.remove(f"{PREEMPTIONS.plural}.{PREEMPTIONS.group}", space, name)

    def _ref(self, pod: str) -> Reference:
        return Reference("v1", "Pod", _SPACE, pod, Uid(pod))

    def _come_back(self) -> None:
        for work in self.works.values():
            if not self.there(work.pod):
                self.planes.governor.ended(work.participant, self.clock.wall())
                self._put(work, self.clock.wall() + SECOND)
                self.seen["new objects"] += 1

    def _put(self, work: Work, created: int) -> None:
        # API servers tell the second of that alone: who is back is made in a later one.
        name = work.come(created)
        metadata = {"name": name, "namespace": _SPACE, "uid": name}
        self.api.put("pods", {"metadata": metadata, "spec": {}})


def _quota_context(world: World, governor: Governor) -> SimpleNamespace:
    return SimpleNamespace(
        options=SimpleNamespace(loop_limit=2, loop_window=HOUR),
        clock=world.clock,
        loops=None,
        metrics=Metrics(),
        events=None,
        disruptions=None,
        writes=True,
        governor=governor,
    )
