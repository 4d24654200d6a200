"""A naive judge of jobs that hold devices without using them, and are preempted for that.

Lives each run second by second, looks for room by trying all of it, and adds up on its own what was
held unused, what was undone, and for how long a job would have gone on so. Times are whole seconds.
Nothing here comes from the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from tests.oracle.gang_replay import Asked, Board, has_room, placed, pods
from tests.oracle.replay import progress_by_seconds


@dataclass
class Person:
    """A job, when it is idle (`busy` seconds of its time, then for `idle`), and how it went on.

    `unused`, `undone` and `given_back` are of each device.
    """

    devices: int
    priority: int
    length: int
    busy: int | None
    idle: int | None = None
    kept: int = 0
    runs: int = 0
    started: int = 0
    away: int | None = None
    over: bool = False
    unused: int = 0
    undone: int = 0
    given_back: int = 0

    def is_idle_at(self, progress: int) -> bool:
        """Whether it does nothing in the second after that one of its time."""
        if self.busy is None:
            return False
        end = self.length if self.idle is None else min(self.length, self.busy + self.idle)
        return self.busy <= progress < end


@dataclass
class Rules:
    """What holds for all jobs, in seconds."""

    grace: int
    always: bool
    checkpoint: int = 0
    save: int = 0
    restart: int = 0


@dataclass
class Judge:
    """Who is where, and who is idle since when; `told` counts what was judged.

    `together`: the planes decide about each demand together. Then fewest devices go before those
    that are idle for longest, jobs that were displaced within the hour (`displaced_at`) may wait
    beside idle ones, and by priority nobody goes where idle ones suffice.
    """

    nodes: int
    of_a_node: int
    jobs: Mapping[str, Person]
    rules: Rules
    told: Counter[str] = field(default_factory=Counter)
    together: bool = False
    displaced_at: dict[str, int] = field(default_factory=dict)
    displaced_by: dict[str, str] = field(default_factory=dict)
    mixed: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked = {name: Asked(job.devices, job.priority) for name, job in self.jobs.items()}
        self.board = Board(self.nodes, self.of_a_node, asked)

    def lived(self, name: str, now: int) -> tuple[int, int | None, int]:
        """Return the progress of a run, since when it is idle (None: it is not), and for how long.

        The last is all that the run held unused.
        """
        job = self.jobs[name]
        progress, since, unused = job.kept, None, 0
        restart = self.rules.restart if job.runs > 1 else 0
        for second in range(job.started, now):
            if second - job.started < restart:
                continue
            if job.is_idle_at(progress):
                since = second if since is None else since
                unused += 1
            else:
                since = None
            progress += 1
        if not job.is_idle_at(progress) or now - job.started < restart:
            since = None
        elif since is None:
            since = now
        return progress, since, unused

    def starts(self, name: str, places: tuple[str, ...], now: int) -> None:
        """A job gets nodes; it was neither over nor away."""
        job = self.jobs[name]
        assert not job.over, f"{name} had nothing left to do"
        assert job.away is None or job.away <= now, f"{name} comes back too early"
        self.told["came back"] += job.away is not None
        job.away = None
        job.started, job.runs = now, job.runs + 1
        self.board.starts(name, places)

    def finishes(self, name: str, now: int) -> None:
        """A run is over by itself: it is as long as the job."""
        job = self.jobs[name]
        progress, _, unused = self.lived(name, now)
        assert progress == job.length, (name, progress)
        job.unused += unused
        self.board.leaves(name)

    def displaced(self, name: str, now: int, by: str) -> None:
        """A run is stopped for a job of higher priority: it falls back to its last save."""
        self.displaced_at[name], self.displaced_by[name] = now, by
        job = self.jobs[name]
        progress, _, unused = self.lived(name, now)
        job.kept = self._saved(job, now)
        job.undone += sum(not job.is_idle_at(second) for second in range(job.kept, progress))
        job.unused += unused

    def reclaimed(self, name: str, now: int) -> None:
        """An idle run is stopped: its job is over, or comes back when it would have been used."""
        self.displaced_at[name] = now
        self.displaced_by.pop(name, None)
        job = self.jobs[name]
        progress, since, unused = self.lived(name, now)
        assert since is not None, f"{name} is busy"
        assert now - since >= self.rules.grace, f"{name} is idle since {since} only"
        assert now - since == self.rules.grace or not self.rules.always, f"{name} was late"
        rest = 0
        while job.is_idle_at(progress + rest):
            rest += 1
        job.unused, job.given_back = job.unused + unused, rest
        if progress + rest == job.length:
            job.over = True
            self.told["over"] += 1
            return
        self.told["to come back"] += 1
        saved = self._saved(job, now)
        assert job.busy is not None
        job.undone += max(0, job.busy - saved)
        self.told["undone"] += saved < job.busy
        # The rest of its idle time is not waited out again.
        job.kept, job.length = min(saved, job.busy), job.length - (progress + rest - job.busy)
        job.busy, job.away = None, now + rest

    def makes_way(
        self, groups: Sequence[tuple[str, Sequence[str]]], waiting: Sequence[str], now: int
    ) -> None:
        """Judge the plans of one instant: each a demand (empty: nobody) with its victims.

        All victims are idle for long enough. Of one demand alone: it waits, does not fit without,
        fits with, nobody goes in vain, and none of those that are longer idle would do instead of
        the last one. Several demands have room together afterwards; where planes decide together,
        one may overtake those before it that are of lower priority.
        """
        gone = [victim for _, victims in groups for victim in victims]
        assert len(set(gone)) == len(gone)
        long = self.idle_long(now)
        assert set(gone) <= set(long), (gone, long)
        if self.rules.always:
            assert all(not demand and len(victims) == 1 for demand, victims in groups)
            self.told["always"] += len(groups)
            return
        widths = [pods(self.jobs[demand].devices, self.of_a_node) for demand, _ in groups]
        together = sorted((width for each in widths for width in each), reverse=True)
        if self.together and not has_room(self.board.free(gone), together):
            together = self._not_overtaken([demand for demand, _ in groups])
            self.told["overtook"] += 1
        assert has_room(self.board.free(gone), together)
        if len(groups) > 1:
            self.told["several"] += 1
            return
        ((demand, victims),) = groups
        assert demand not in self.board.where
        assert not has_room(self.board.free(), widths[0]), "there was room without"
        fewer = list(combinations(victims, len(victims) - 1))
        assert any(
            self._takes(nodes, widths[0], victims)
            and not any(self._takes(nodes, widths[0], some) for some in fewer)
            for nodes in product(range(self.nodes), repeat=len(widths[0]))
        ), "somebody goes in vain"
        last = max(long.index(victim) for victim in victims)
        self.told["for a demand"] += 1
        self.told["several victims"] += len(victims) > 1
        if self.together:
            devices = self._held(victims)
            if self._returned(demand, now):
                assert devices <= self.jobs[demand].devices, "more than it has lost"
                if demand in self.displaced_by:
                    before = self.board.jobs[self.displaced_by[demand]].priority
                    lowest = min(self.board.jobs[each].priority for each in victims)
                    assert lowest >= before, "who displaced it could have had them evicted"
                    self.told["by debt to a priority"] += 1
                self.told["by debt"] += 1
                return
            self._fewest(demand, waiting, long[: last + 1], devices)
            return
        assert not has_room(self.board.free(long[:last]), widths[0]), "others were idle for longer"
        self.told["passed over"] += last + 1 > len(victims)

    def _held(self, names: Iterable[str]) -> int:
        return sum(self.jobs[each].devices for each in names)

    def _enough(
        self, names: Sequence[str], widths: Sequence[int], gone: Sequence[str] = ()
    ) -> list[tuple[str, ...]]:
        """Return all sets of these with which gone, and the others, the widths have room."""
        return [
            each
            for number in range(len(names) + 1)
            for each in combinations(names, number)
            if has_room(self.board.free([*gone, *each]), widths)
        ]

    def _not_overtaken(self, demands: Sequence[str]) -> list[int]:
        """Return the pods of those that no later one of strictly higher priority overtakes."""
        left = [
            name
            for at, name in enumerate(demands)
            if all(self.jobs[e].priority <= self.jobs[name].priority for e in demands[at + 1 :])
        ]
        widths = (pods(self.jobs[each].devices, self.of_a_node) for each in left)
        return sorted((width for each in widths for width in each), reverse=True)

    def _fewest(
        self, demand: str, waiting: Sequence[str], long: Sequence[str], devices: int
    ) -> None:
        """Oldest idle first, as many as suffice, without those not needed, hold no less.

        Unless others of higher priority would use what every such set frees.
        """
        widths = pods(self.jobs[demand].devices, self.of_a_node)
        chosen = next(
            [*long[:number]]
            for number in range(len(long) + 1)
            if has_room(self.board.free(long[:number]), widths)
        )
        for name in reversed(chosen[:]):
            fewer = [each for each in chosen if each != name]
            if has_room(self.board.free(fewer), widths):
                chosen = fewer
        if devices > self._held(chosen):
            sets = self._sets_left_to(demand, waiting, long)
            assert all(self._held(each) >= devices for each in sets), "fewer would do"
            self.told["a next set"] += 1

    def beside(self, name: str, victims: Sequence[str], now: int) -> None:
        """Idle work goes with which and all lower ones a job fits; idle work alone is not enough.

        Where lower ones alone are enough, one of the idle ones is lower, too, or fewer devices may
        go in all than by priority alone.
        """
        long = self.idle_long(now)
        assert set(victims) <= set(long), (victims, long)
        priority = self.board.jobs[name].priority
        lower = [each for each in self.board.where if self.board.jobs[each].priority < priority]
        widths = pods(self.jobs[name].devices, self.of_a_node)
        assert has_room(self.board.free([*victims, *lower]), widths), "they go in vain"
        assert not has_room(self.board.free(long), widths), "idle ones were enough"
        if set(victims).isdisjoint(lower) and has_room(self.board.free(lower), widths):
            beside = [self._held(each) for each in self._enough(lower, widths, victims)]
            alone = self._enough(lower, widths)
            most = max(self._held(each) for each in alone if self.board.needs_all(widths, each))
            assert self._held(victims) + min(beside) < most, "lower ones were enough"
            self.told["beside lower ones that were enough"] += 1
        self.mixed[name] = len(victims)
        self.told["beside priority"] += 1

    def preempts(
        self,
        name: str,
        victims: Sequence[str],
        leaving: Sequence[str],
        now: int,
        before: Mapping[str, bool],
    ) -> None:
        """By priority nobody goes where idle work suffices, unless far fewer devices go so.

        `before`: those for whom `leaving` leave, and whether that is idle work. Of the latter those
        of no higher priority may be overtaken, if the lower ones are enough without, too.
        """
        own = self.jobs[name].priority
        overtaken = [e for e, idle in before.items() if idle and self.jobs[e].priority <= own]
        ways = [[*before], [e for e in before if e not in overtaken]]
        self.board.makes_way(name, victims, leaving, ways)
        if overtaken:
            assert not self._joins(name, leaving), f"{name} has what was made for {overtaken}"
            self.told["overtook"] += 1
        if not self.together or self._returned(name, now) or self.mixed.pop(name, 0):
            return
        long = [each for each in self.idle_long(now) if each not in leaving]
        widths = pods(self.jobs[name].devices, self.of_a_node)
        enough = has_room(self.board.free([*long, *leaving]), widths)
        if enough and not set(victims) <= set(long):
            sets = (each for count in range(1, len(long) + 1) for each in combinations(long, count))
            least = min(
                sum(self.jobs[each].devices for each in some)
                for some in sets
                if has_room(self.board.free([*some, *leaving]), widths)
            )
            going = sum(self.jobs[each].devices for each in victims)
            assert 2 * least > 3 * going, f"{victims} go beside idle {long}"
        self.told["by priority beside idle"] += bool(long)

    def _returned(self, name: str, now: int) -> bool:
        return now - self.displaced_at.get(name, -3_600) < 3_600

    def idle_long(self, now: int) -> list[str]:
        """Return who is idle for its grace period, the longest first."""
        since = {name: self.lived(name, now)[1] for name in self.board.where}
        long = [
            (at, name)
            for name, at in since.items()
            if at is not None and now - at >= self.rules.grace
        ]
        return [name for _, name in sorted(long)]

    def waits_rightly(self, waiting: Sequence[str], now: int) -> None:
        """Nobody waits who fits, nor beside idle ones with which it would."""
        long = self.idle_long(now)
        assert not (long and self.rules.always), f"{long} are still there"
        for name in waiting:
            widths = pods(self.jobs[name].devices, self.of_a_node)
            assert not has_room(self.board.free(), widths), f"{name} waits, and there is room"
            if self.together and self._returned(name, now):
                self.told["returned"] += 1
                continue
            if has_room(self.board.free(long), widths):
                assert self.together, f"{name} waits beside {long}"
                helped = self._sets_left_to(name, waiting, long)
                assert not helped, f"{name} waits beside {long}, of which {helped} are enough"
                self.told["others would have been first"] += 1
            self.told["refused"] += 1
            self.told["refused beside idle"] += bool(long)

    def _sets_left_to(
        self, name: str, waiting: Sequence[str], long: Sequence[str]
    ) -> list[tuple[str, ...]]:
        """Return the sets of idle work with which a job fits beside all of higher priority.

        Each of a set is needed for the job itself; others may preempt lower ones beside it.
        """
        own = self.jobs[name].priority
        ahead = sorted(
            (each for each in waiting if self.jobs[each].priority > own),
            key=lambda each: -self.jobs[each].priority,
        )
        widths = pods(self.jobs[name].devices, self.of_a_node)
        found = []
        enough = self._enough(long, widths)
        for some in enough:
            if any(set(fewer) < set(some) for fewer in enough):
                continue
            if any(self._joins(each, some) for each in ahead):
                continue
            ways = {tuple(self.board.free(some))}
            for each in ahead:
                theirs = pods(self.jobs[each].devices, self.of_a_node)
                ways = {left for free in ways for left in placed(free, theirs) or [free]}
            if all(has_room(free, widths) for free in ways):
                found.append(some)
        return found

    def _joins(self, name: str, gone: Sequence[str]) -> bool:
        """Whether the lower ones are enough for a job only together with these."""
        own, widths = self.jobs[name].priority, pods(self.jobs[name].devices, self.of_a_node)
        lower = [each for each in self.board.where if self.jobs[each].priority < own]
        beside = has_room(self.board.free([*lower, *gone]), widths)
        return beside and not has_room(self.board.free(lower), widths)

    def _saved(self, job: Person, now: int) -> int:
        rules = self.rules
        restart = rules.restart if job.runs > 1 else 0
        return progress_by_seconds(
            now - job.started, rules.checkpoint, rules.save, restart, job.kept
        )[0]

    def _takes(self, nodes: Sequence[int], widths: Sequence[int], gone: Sequence[str]) -> bool:
        free = self.board.free(gone)
        for node, width in zip(nodes, widths, strict=True):
            free[node] -= width
        return min(free) >= 0
