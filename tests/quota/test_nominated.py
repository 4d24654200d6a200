"""A head for which nothing has changed is nominated as if it were looked at anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from kubeworld.units.instants import Nanos
from reprieve.engine.quota.cycle import cycle
from reprieve.engine.quota.entries import CycleResult, Entry, Outcome
from reprieve.engine.quota.holdings.state import Holdings
from reprieve.engine.quota.model import (
    Admission,
    AdmittedPodSet,
    Configuration,
    PodSet,
    Policy,
    Preemption,
    Workload,
)
from reprieve.engine.quota.nominated import Nominated
from reprieve.engine.quota.waiting.queues import Queues
from tests.quota.cases import NOW, SECOND, Scene, Size, scene, waiting
from tests.quota.test_loops import configuration, jobs, queue

SIZE = Size(queues=6, cohorts=3, admitted=14, pending=14, quota=6)


class Site:
    """Holdings and queues to which the same things happen, with or without a memory."""

    def __init__(self, case: Scene, nominated: Nominated | None) -> None:
        self.holdings, self.queues = Holdings(case.configuration), Queues(case.configuration)
        self.nominated = nominated
        for workload in case.admitted:
            self.holdings.hold(workload)
        for workload in (*case.pending, case.incoming):
            self.queues.push(workload)

    def run(self, now: Nanos, first: int) -> list[CycleResult]:
        """Run cycles as long as they change something, and one more, four at least."""
        results: list[CycleResult] = []
        while len(results) < 4 or (results[-1].progress and len(results) < 25):
            number = first + len(results)
            results.append(cycle(self.holdings, self.queues, now, number, nominated=self.nominated))
        return results

    def happens(self, event: str, key: str, workload: Workload, new: Configuration) -> None:
        if event == "push":
            self.queues.push(workload)
        elif event == "release":
            queue = self.holdings.tree.names[self.holdings.holders[key].queue]
            self.holdings.release(key)
            self.queues.flush(self.holdings.related(queue))
        elif event == "failed":
            self.holdings.eviction_failed(key)
        elif event == "use":
            usage = self.queues.local_queue_usage
            usage[workload.queue] = 10.0 * (workload.uid > "5")
        elif event == "flush":
            self.queues.flush(self.holdings.tree.queues)
        elif event == "configure":
            self.holdings.configure(new)
            self.queues.configure(new)


def varied(random: Random, case: Scene) -> Scene:
    """Return the scene, sometimes with minimum runtimes or admission fair sharing."""
    chance = random.random()
    if chance < 0.15:
        guarded = tuple(
            replace(each, preempt_min_runtime_s=random.choice((0, 4)), reclaim_min_runtime_s=4)
            for each in case.admitted
        )
        return replace(case, admitted=guarded)
    if chance < 0.4:
        settings = replace(case.configuration.settings, admission_fair_sharing=True)
        shared = tuple(
            replace(each, queue=each.queue + random.choice(("", "-b"))) for each in case.admitted
        )
        configuration = replace(case.configuration, settings=settings)
        return replace(case, configuration=configuration, admitted=shared)
    return case


def told(entry: Entry) -> tuple[Any, ...]:
    """Return all that is told of an entry, and what becomes of it."""
    return (
        *(entry.workload.key, entry.cluster_queue, entry.outcome, entry.reason, entry.message),
        *(entry.requeue, entry.level, entry.admission, repr(entry.assignment), entry.resumed),
        *(entry.scan, dict(entry.free), entry.preempts, entry.deferred),
        [(each.holder.key, each.reason) for each in entry.targets],
        [each.holder.key for each in entry.issued],
    )


def summary(result: CycleResult) -> tuple[Any, ...]:
    assert result.fault is None, result.fault
    return (
        [told(entry) for entry in result.entries],
        *(result.skipped_preemptions, result.recomputations, result.retries),
        *(result.progress, result.scanned),
    )


def test_a_head_of_a_tree_that_nobody_uses_is_looked_at_anew_with_a_new_configuration() -> None:
    before, after = (configuration(queue("small", nominal)) for nominal in (1, 2))
    holdings, queues, nominated = Holdings(before), Queues(before), Nominated()
    (job,) = jobs(Random(1), "small", 1, gpus=2)
    queues.push(job)
    (refused,) = cycle(holdings, queues, NOW, nominated=nominated).entries
    assert refused.outcome is Outcome.NO_FIT
    holdings.configure(after)
    queues.configure(after)
    (admitted,) = cycle(holdings, queues, NOW, 1, nominated=nominated).entries
    assert admitted.outcome is Outcome.ADMITTED


def test_a_head_that_was_changed_in_its_place_is_looked_at_anew() -> None:
    new = configuration(queue("small", 1))
    holdings, queues, nominated = Holdings(new), Queues(new), Nominated()
    (job,) = jobs(Random(1), "small", 1, gpus=2)
    (smaller,) = jobs(Random(1), "small", 1, gpus=1)
    assert smaller.key == job.key
    queues.push(job)
    (refused,) = cycle(holdings, queues, NOW, nominated=nominated).entries
    assert refused.outcome is Outcome.NO_FIT
    queues.push(smaller)
    (admitted,) = cycle(holdings, queues, NOW, 1, nominated=nominated).entries
    assert admitted.outcome is Outcome.ADMITTED


def test_a_head_that_takes_the_place_of_a_slice_is_looked_at_anew_each_time() -> None:
    rules = Preemption(within_cluster_queue=Policy.LOWER_PRIORITY)
    new = configuration(queue("small", 3, rules))
    slice, low = jobs(Random(1), "small", 2)
    slice = replace(slice, pod_sets=(PodSet("main", 1, {"nvidia.com/gpu": 2}),))
    running = tuple(
        replace(
            each,
            admission=Admission(
                "small",
                (AdmittedPodSet("main", 1, {"nvidia.com/gpu": "gpus"}, each.pod_sets[0].requests),),
            ),
            reserved_at=NOW,
        )
        for each in (slice, replace(low, priority=-1))
    )
    (larger,) = jobs(Random(2), "small", 1, gpus=3)
    larger = replace(larger, name="larger", replaces=slice.key)
    case = Scene(new, running, (), larger, "small", {}, frozenset())
    remembering, anew = Site(case, Nominated()), Site(case, None)
    results = remembering.run(NOW, 0)
    assert list(map(summary, results)) == list(map(summary, anew.run(NOW, 0)))
    waits = [result.entries[0] for result in results]
    assert {entry.outcome for entry in waits} == {Outcome.PREEMPTING}
    # Only the victim leaves for it: the slice stays until there is room for the larger one.
    assert [[each.holder.key for each in entry.issued] for entry in waits[:2]] == [[low.key], []]
    for site in (remembering, anew):
        site.happens("release", low.key, larger, new)
    (admitted,) = remembering.run(NOW, 4)[0].entries
    assert admitted.outcome is Outcome.ADMITTED
    assert remembering.holdings.holders.keys() == {larger.key}


def test_a_head_is_nominated_as_before_only_if_it_would_be_nominated_so_anew() -> None:
    random, seen, saved = Random(91), Counter[str](), 0
    for number in range(120):
        case = varied(random, scene(random, size=SIZE))
        other = scene(random, size=SIZE)
        remembering, anew = Site(case, Nominated()), Site(case, None)
        first, now = 0, NOW
        for step in range(6):
            before = remembering.nominated.saved if remembering.nominated else 0
            results = remembering.run(now, first)
            assert list(map(summary, results)) == list(map(summary, anew.run(now, first))), number
            assert remembering.holdings.usage == anew.holdings.usage, number
            assert remembering.nominated is not None
            if remembering.holdings.configuration.settings.admission_fair_sharing:
                # What orders candidates there changes without anybody coming or going.
                assert not remembering.nominated.saved
            if remembering.nominated.saved > before:
                saved += remembering.nominated.saved - before
                seen.update({str(entry.outcome) for r in results[1:] for entry in r.entries})
            first, now = first + len(results), Nanos(now + SECOND)
            event = random.choice(("push", "release", "failed", "flush", "use", "nothing"))
            if random.random() < 0.05:
                event = "configure"
            holders = sorted(remembering.holdings.holders)
            if not holders:
                break
            name = random.choice(sorted(remembering.holdings.tree.queues))
            new = waiting(random, f"new-{step}", name, ["cpu"], SIZE)
            if random.random() < 0.3:
                new = replace(new, priority=5)
            key = random.choice(holders)
            for site in (remembering, anew):
                site.happens(event, key, new, other.configuration)
            seen[event] += 1
    assert saved >= 1_000, saved
    wanted = (Outcome.PREEMPTING, Outcome.NO_CANDIDATES, Outcome.NO_FIT, Outcome.SKIPPED)
    assert min(seen[str(each)] for each in wanted) >= 5, seen
    events = ("push", "release", "failed", "flush", "use", "configure")
    assert min(seen[each] for each in events) >= 15, seen


def test_what_fits_gets_what_others_of_its_shape_got() -> None:
    new = configuration(queue("mine", 3), queue("other", 3))
    nominated, told = Nominated(), []
    for known in (nominated, None):
        holdings, queues = Holdings(new), Queues(new)
        for each in jobs(Random(3), "mine", 5, gpus=2):
            queues.push(each)
        results = [cycle(holdings, queues, NOW, n, nominated=known) for n in range(4)]
        told.append(list(map(summary, results)))
    assert told[0] == told[1]
    # The first is within its quota; the second borrows, so that nothing of it is known; so does the
    # third, for the whole cohort has two left.
    assert nominated.fitting.saved == 1
    outcomes = [entry.outcome for result in results for entry in result.entries]
    assert outcomes == [Outcome.ADMITTED] * 3 + [Outcome.NO_CANDIDATES]


def test_a_shape_of_another_name_or_configuration_is_assigned_anew() -> None:
    nominated = Nominated()
    for nominal, name in ((2, "main"), (2, "worker"), (1, "worker")):
        new = configuration(queue("mine", nominal))
        holdings, queues = Holdings(new), Queues(new)
        (job,) = jobs(Random(3), "mine", 1, gpus=2)
        queues.push(replace(job, pod_sets=(replace(job.pod_sets[0], name=name),)))
        (entry,) = cycle(holdings, queues, NOW, nominated=nominated).entries
        assert entry.assignment is not None
        assert [each.name for each in entry.assignment.pod_sets] == [name]
        assert entry.outcome is (Outcome.ADMITTED if nominal == 2 else Outcome.NO_FIT)
    assert not nominated.fitting.saved
