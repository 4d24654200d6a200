"""Trees in the queue: one entry under their root, which waits for all of them that is needed."""

from __future__ import annotations

from reprieve.engine.cluster.rows import COMPOSITE
from reprieve.engine.scheduling.queueing.events import GANG, Happening
from reprieve.engine.scheduling.queueing.queue import Outcome
from tests.engine.builders import composite, group, pod
from tests.engine.scheduling.test_queue import FIT, Site, names

ROOT = f"{COMPOSITE}default/root"


def tree(site: Site, minimum: int = 2) -> None:
    """A root over two gangs of one pod each, without pods."""
    site.add_group(composite("root", min_count=minimum, priority=5))
    for name in "ab":
        site.add_group(group(name, min_count=1, parent="root", priority=5))


def remove(site: Site, key: str) -> None:
    site.facts.forest.remove(key)
    site.queue.group_changed(key, site.now)


def test_a_tree_is_one_entry_and_waits_for_as_many_groups_as_it_needs() -> None:
    site = Site()
    tree(site)
    first = pod("a-0", group="a", priority=5)
    site.add(first)
    assert site.pop() is None
    gate = site.queue.gate(first.uid)
    assert gate is not None
    assert (gate.plugin, gate.message) == (
        GANG,
        'waiting for composite pod group "root" tree to meet quorum',
    )
    site.add(pod("b-0", group="b", priority=5))
    unit = site.pop()
    assert unit is not None
    assert (unit.group, names(unit)) == (ROOT, ["a-0", "b-0"])
    assert site.queue.entities()["active", "podgroup"] == 0


def test_pods_wait_outside_until_every_group_above_them_is_there() -> None:
    site = Site()
    waiting = pod("g-0", group="g")
    site.add_group(composite("root"))
    site.add(waiting)
    assert 'pod group "g"' in _message(site, waiting.uid)
    site.add_group(group("g", min_count=1, parent="middle"))
    assert _message(site, waiting.uid) == (
        'waiting for composite pod group "middle" to appear in scheduling queue'
    )
    assert (site.queue.place(waiting.uid), site.pop()) == ("incomplete", None)
    site.add_group(composite("middle", parent="root"))
    unit = site.pop()
    assert unit is not None
    assert (unit.group, names(unit)) == (ROOT, ["g-0"])


def test_those_below_a_group_that_is_deleted_are_set_aside_and_the_others_stay() -> None:
    site = Site()
    site.add_group(composite("root"))
    site.add_group(composite("middle", parent="root"))
    site.add_group(group("a", min_count=1, parent="middle"))
    site.add_group(group("b", min_count=1, parent="root"))
    site.add(pod("a-0", group="a"), pod("b-0", group="b"))
    remove(site, f"{COMPOSITE}default/middle")
    assert site.queue.pods()["incomplete"] == 1
    assert names(site.reject(FIT)) == ["b-0"]
    remove(site, ROOT)
    assert site.queue.pods()["incomplete"] == 2
    site.add_group(composite("middle", parent="root"))
    assert site.queue.pods()["incomplete"] == 2
    site.add_group(composite("root"))
    assert names(site.pop()) == ["b-0", "a-0"], "the one that was tried has the older entry"


def test_a_group_that_is_deleted_while_its_tree_is_tried_takes_its_members_out_after() -> None:
    site = Site()
    tree(site, minimum=1)
    site.add(pod("a-0", group="a", priority=5), pod("b-0", group="b", priority=5))
    unit = site.pop()
    assert unit is not None
    remove(site, "default/a")
    site.done(unit, Outcome.REJECTED, dict.fromkeys(unit.pods, (FIT,)))
    assert site.queue.pods()["incomplete"] == 1
    site.now += 60_000_000_000
    assert names(site.pop()) == ["b-0"]


def test_a_pod_of_a_sibling_wakes_the_tree() -> None:
    site = Site()
    tree(site)
    site.add(pod("a-0", group="a", priority=5))
    assert site.pop() is None
    site.facts.pods["default/b"] = {pod("b-0").uid}
    placed = pod("b-0", group="b", node="n1")
    both = frozenset({"default/a", "default/b"})
    site.event(Happening.POD_ADDED, pod=placed, group="default/b", tree=both)
    assert names(site.pop()) == ["a-0"]


def test_a_lower_minimum_of_groups_wakes_the_tree() -> None:
    site = Site()
    tree(site)
    site.add(pod("a-0", group="a", priority=5))
    assert site.pop() is None
    site.add_group(composite("root", min_count=1, priority=5))
    assert names(site.pop()) == ["a-0"]


def test_pods_of_a_circle_are_tried_under_their_own_group_to_be_told() -> None:
    site = Site()
    site.add_group(composite("a", parent="b"))
    site.add_group(composite("b", parent="a"))
    site.add_group(group("g", min_count=1, parent="a"))
    site.add(pod("g-0", group="g"))
    unit = site.pop()
    assert unit is not None
    assert unit.group == "default/g"
    site.done(unit, Outcome.ERROR)
    remove(site, f"{COMPOSITE}default/b")
    assert site.queue.pods()["incomplete"] == 1


def _message(site: Site, uid: str) -> str:
    gate = site.queue.gate(uid)  # type: ignore[arg-type]
    assert gate is not None
    return gate.message
