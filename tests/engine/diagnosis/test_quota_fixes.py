"""What is told to help does help: the engine admits the workload once the first change is made."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.engine.diagnosis.model import Change, Fix
from reprieve.engine.diagnosis.quota import diagnose
from reprieve.engine.diagnosis.quota_fixes import MOST_DECISIONS, ClassChoice, Remedy, remedies
from reprieve.engine.diagnosis.quota_rehearsal import Rehearsal
from reprieve.engine.quota.displacements import Displacements
from reprieve.engine.quota.model import (
    BorrowWithinCohort,
    FlavorQuotas,
    LocalQueue,
    Policy,
    Preemption,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Settings,
    StopPolicy,
    Taint,
    Workload,
)
from tests.engine.diagnosis.quota_cases import GPU, NOW, STRICT, Site, held, queue, work

CLASSES = (ClassChoice("mid", 5), ClassChoice("high", 10), ClassChoice("top", 20))
NEVER = Preemption()


def found(site: Site, name: str, classes: tuple[ClassChoice, ...] = ()) -> list[Remedy]:
    key = f"team/{name}"
    workload = site.queues.workload(key) or site.queues.waiting()[key]
    facts = site.facts(key)
    said = diagnose(facts, workload)
    assert said is not None
    return list(remedies(facts, workload, said, classes))


def fixes(site: Site, name: str, classes: tuple[ClassChoice, ...] = ()) -> list[Fix]:
    return [each.fix for each in found(site, name, classes)]


def test_as_many_pods_as_fit_are_told() -> None:
    site = Site(queue("q", 8, preemption=NEVER)).hold(held(work("h", "q", 3), "q"))
    site.submit(work("w", "q", 1, 7)).decide()
    assert fixes(site, "w") == [Fix(Change.FEWER_PODS, "spec.podSets[main].count", "7", "5")]


def test_with_partial_admission_fewer_than_the_minimum_are_not_told() -> None:
    site = Site(queue("q", 8, preemption=NEVER)).hold(held(work("h", "q", 6), "q"))
    site.submit(work("w", "q", 1, 7, min_count=3)).decide()
    assert fixes(site, "w") == []


def test_fewer_devices_a_pod_are_told_where_pods_cannot_be_fewer() -> None:
    site = Site(queue("q", 8)).submit(work("w", "q", 12)).decide()
    field = f"spec.podSets[main].template.spec, requests of {GPU}"
    assert fixes(site, "w") == [Fix(Change.FEWER_DEVICES, field, "12", "8")]


def test_one_constraint_less_and_another_flavor_are_told() -> None:
    flavors = (
        ResourceFlavor("a100", {"gpu": "a100"}),
        ResourceFlavor("h100", {"gpu": "h100"}, (Taint("dear", "yes", "NoSchedule"),)),
        ResourceFlavor("l40", {"gpu": "l40"}),
    )
    quotas = tuple(FlavorQuotas(each.name, {GPU: Quota(4)}) for each in flavors)
    site = Site(
        queue("q", 0, groups=(ResourceGroup((GPU,), quotas),), preemption=NEVER), flavors=flavors
    )
    site.hold(held(work("h", "q", 4), "q"))
    pod_set = replace(work("w", "q", 1).pod_sets[0], node_selector={"gpu": "a100"})
    site.submit(replace(work("w", "q", 1), pod_sets=(pod_set,))).decide()
    field = "spec.podSets[main].template.spec.nodeSelector[gpu]"
    assert fixes(site, "w") == [
        Fix(Change.WITHOUT_CONSTRAINT, field, "a100", ""),
        Fix(Change.OTHER_FLAVOR, field, "a100", "l40"),
    ]


def test_a_toleration_for_the_one_taint_is_told() -> None:
    tainted = ResourceFlavor("a100", taints=(Taint("gpu", "yes", "NoSchedule"),))
    site = Site(queue("q", 4), flavors=(tainted,)).submit(work("w", "q", 1)).decide()
    field = "spec.podSets[main].template.spec.tolerations"
    assert fixes(site, "w") == [
        Fix(Change.OTHER_FLAVOR, field, "none for it", "gpu=yes:NoSchedule")
    ]


def test_another_queue_of_the_namespace_is_told_and_no_other() -> None:
    site = Site(
        queue("q", 2, preemption=NEVER),
        queue("r", 4),
        local_queues={
            each.key: each
            for each in (
                LocalQueue("team/q", "q"),
                LocalQueue("team/again", "q"),
                LocalQueue("team/r", "r"),
                LocalQueue("others/r", "r"),
            )
        },
    )
    site.hold(held(work("h", "q", 2), "q")).submit(work("w", "q", 1)).decide()
    assert fixes(site, "w") == [Fix(Change.OTHER_QUEUE, "spec.queueName", "q", "r")]


def test_a_stopped_queue_is_left_for_another() -> None:
    site = Site(queue("q", 2, stop_policy=StopPolicy.HOLD), queue("r", 4))
    site.submit(work("w", "q", 1)).decide()
    assert fixes(site, "w") == [Fix(Change.OTHER_QUEUE, "spec.queueName", "q", "r")]


def test_the_lowest_class_that_helps_is_told_with_who_makes_way() -> None:
    site = Site(queue("q", 4)).hold(held(work("h", "q", 4, priority=5), "q"))
    site.submit(work("w", "q", 1)).decide()
    field = "metadata.labels[kueue.x-k8s.io/priority-class]"
    assert fixes(site, "w", CLASSES) == [Fix(Change.HIGHER_PRIORITY, field, "0", "high", 1)]


def test_waiting_for_the_end_of_a_protection_is_told_with_the_instant() -> None:
    site = Site(queue("q", 4), ledger=Displacements())
    site.hold(held(work("h", "q", 4, preempt_min_runtime_s=900), "q"))
    site.submit(work("w", "q", 1, priority=5)).decide()
    until = Nanos(NOW + 300 * SECOND)
    assert fixes(site, "w") == [Fix(Change.WAIT, "", format_instant(NOW), format_instant(until), 1)]


def test_waiting_for_those_who_leave_is_told() -> None:
    site = Site(queue("q", 4)).hold(held(work("h", "q", 4), "q"))
    site.submit(work("w", "q", 4, priority=5)).decide()
    first = fixes(site, "w")[0]
    assert (first.change, first.after) == (
        Change.WAIT,
        "those that are preempted already have ended",
    )


def test_behind_the_head_fewer_pods_do_not_help_but_a_higher_class_does() -> None:
    site = Site(queue("q", 8, strategy=STRICT)).hold(held(work("h", "q", 6, priority=99), "q"))
    site.submit(work("head", "q", 4, priority=5), work("w", "q", 1, 2)).decide()
    field = "metadata.labels[kueue.x-k8s.io/priority-class]"
    assert fixes(site, "w", CLASSES) == [Fix(Change.HIGHER_PRIORITY, field, "0", "high")]


def test_that_nothing_helps_is_an_answer() -> None:
    site = Site(queue("q", 0)).submit(work("w", "q", 1)).decide()
    assert fixes(site, "w", CLASSES) == []


def test_no_more_decisions_are_made_than_are_allowed_and_nothing_changes(monkeypatch: Any) -> None:
    made: list[Any] = []
    play = Rehearsal._play

    def counted(*given: Any) -> Any:
        made.append(given)
        return play(*given)

    monkeypatch.setattr(Rehearsal, "_play", counted)
    site = Site(queue("q", 900, preemption=NEVER), *(queue(f"r{k}", 0) for k in range(30)))
    site.hold(held(work("h", "q", 1, 500), "q"))
    site.submit(work("w", "q", 1, 5_000)).decide()
    before = (site.holdings.usage, site.queues.active(), site.queues.inadmissible())
    classes = tuple(ClassChoice(f"c{k}", k) for k in range(1, 40))
    assert [each.change for each in fixes(site, "w", classes)] == [Change.FEWER_PODS]
    assert len(made) <= MOST_DECISIONS
    assert (site.holdings.usage, site.queues.active(), site.queues.inadmissible()) == before


def test_the_first_fix_admits_in_nearly_all_generated_cases() -> None:
    helped, failed = 0, []
    for seed in range(3_000):
        site, waiting = generated(Random(seed))
        for name in waiting:
            key = f"team/{name}"
            workload = site.queues.workload(key)
            facts = site.facts(key)
            said = None if workload is None else diagnose(facts, workload)
            if workload is None or said is None:
                continue
            first = next(iter(remedies(facts, workload, said, CLASSES)), None)
            if first is None:
                continue
            helped += 1
            if not admits(site, first):
                failed.append((seed, name, said.reason, first.fix))
            break  # the site has changed
        if helped >= 400:
            break
    assert helped >= 400, helped
    assert len(failed) <= helped // 100, failed


def admits(site: Site, remedy: Remedy) -> bool:
    """Make the change, let who is evicted go, and tell whether the workload gets its quota."""
    key = remedy.workload.key
    site.queues.delete(key)
    site.queues.push(remedy.workload)
    site.queues.flush(site.configuration.cluster_queues)
    for _ in range(6):
        site.decide(remedy.at)
        if key in site.holdings.holders:
            return True
        for holder in [each for each in site.holdings.holders.values() if each.evicted]:
            site.holdings.release(holder.key)
        site.queues.flush(site.configuration.cluster_queues)
    return False


def generated(random: Random) -> tuple[Site, list[str]]:
    """Return a site at rest with two flavors, borrowing, order and priorities, and who waits."""
    cohort = random.choice(("", "all"))
    fair = random.choice((None, None, ()))

    def group() -> ResourceGroup:
        names = random.choice((("a100",), ("a100", "h100"), ("h100", "a100")))
        limit = random.choice((None, None, 0, 2)) if cohort else None
        return ResourceGroup(
            (GPU,),
            tuple(FlavorQuotas(name, {GPU: Quota(random.randint(0, 8), limit)}) for name in names),
        )

    def rules() -> Preemption:
        borrow = BorrowWithinCohort(Policy.LOWER_PRIORITY) if random.random() < 0.3 else None
        reclaim = random.choice((Policy.NEVER, Policy.ANY, Policy.LOWER_PRIORITY))
        within = random.choice((Policy.NEVER, Policy.LOWER_PRIORITY))
        return Preemption(within, reclaim, borrow if reclaim is not Policy.NEVER else None)

    queues = [
        queue(
            f"q{k}",
            0,
            cohort,
            groups=(group(),),
            preemption=rules(),
            strategy=random.choice(list(QueueingStrategy)),
        )
        for k in range(random.randint(1, 3))
    ]
    site = Site(
        *queues,
        flavors=(ResourceFlavor("a100", {"gpu": "a100"}), ResourceFlavor("h100", {"gpu": "h100"})),
        settings=Settings(fair_sharing=fair),
        ledger=Displacements(),
    )
    for k in range(random.randint(2, 8)):
        each = job(random, f"h{k}", queues)
        site.submit(each).decide(Nanos(NOW - random.randint(100, 999) * SECOND))
        for holder in [h for h in site.holdings.holders.values() if h.evicted]:
            site.holdings.release(holder.key)
        site.queues.delete(each.key)
    names = [f"w{k}" for k in range(random.randint(1, 5))]
    site.submit(*(job(random, name, queues) for name in names)).decide()
    random.shuffle(names)
    return site, names


def job(random: Random, name: str, queues: list[Any]) -> Workload:
    made = work(
        name,
        random.choice(queues).name,
        random.choice((1, 1, 2, 4)),
        random.randint(1, 6),
        priority=random.choice((0, 0, 3, 7)),
        created=Nanos(NOW - random.randint(0, 50) * SECOND),
        min_count=random.choice((None, None, 1)),
        preempt_min_runtime_s=random.choice((0, 0, 600)),
    )
    if random.random() < 0.3:
        chosen = {"gpu": random.choice(("a100", "h100"))}
        made = replace(made, pod_sets=(replace(made.pod_sets[0], node_selector=chosen),))
    return made
