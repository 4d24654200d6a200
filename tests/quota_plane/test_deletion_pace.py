"""What a controller makes again is deleted again only after a pause that grows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from kubeworld.units.instants import Nanos, format_instant
from reprieve.kube.cache import Cache
from reprieve.kube.resource import PODS
from reprieve.planes.quota.context import QuotaOptions
from reprieve.planes.quota.job_reconciler import deletion_pace
from reprieve.planes.quota.job_reconciler.deletion_pace import DeletionPace
from reprieve.planes.quota.pod_reconcilers.pod_lookup import PodLookup
from reprieve.planes.quota.pod_reconcilers.pod_records import pod_indexes
from reprieve.planes.quota.pod_reconcilers.pod_steps import PodSteps
from reprieve.planes.quota.watches import Held
from tests.jobs.builders import pod
from tests.quota_plane.kind_stories import ROWS
from tests.quota_plane.site import NAMESPACE, cluster_queue, flavor, local_queue, site

TENTH = SECOND // 10


class Standing:
    """A clock that stands still until it is set forward."""

    def __init__(self) -> None:
        self._now = Nanos(1_772_618_400 * SECOND)

    def wall(self) -> Nanos:
        return self._now

    def monotonic(self) -> Nanos:
        return self._now

    async def sleep(self, nanoseconds: int) -> None:
        self.advance(nanoseconds)

    def advance(self, nanoseconds: int) -> None:
        self._now = Nanos(self._now + nanoseconds)


def created(clock: Standing) -> str:
    return format_instant(clock.wall())


def storm(pace: DeletionPace, clock: Standing, until: int, server: int = 0) -> list[int]:
    """Make a pod again as soon as it is deleted, and return when it was deleted, in tenths.

    `server` is how far the API server's clock is ahead.
    """
    begun, gone, made = clock.monotonic(), list[int](), format_instant(Nanos(clock.wall() + server))
    while clock.monotonic() - begun < until:
        if pace.count("owner", made) is None:
            gone.append((clock.monotonic() - begun) // TENTH)
            made = format_instant(Nanos(clock.wall() + server))
        clock.advance(TENTH)
    return gone


def test_what_is_made_again_at_once_goes_after_pauses_twice_as_long_each() -> None:
    gone = storm(DeletionPace(clock := Standing()), clock, 2 * MINUTE)
    pauses = [after - before for before, after in itertools.pairwise(gone)]
    assert pauses[0] <= 10 and all(b <= 2.1 * a for a, b in itertools.pairwise(pauses))
    assert gone == [0, 10, 30, 70, 150, 310, 630]


def test_the_longest_pause_is_five_minutes() -> None:
    gone = storm(DeletionPace(clock := Standing()), clock, 60 * MINUTE)
    pauses = [after - before for before, after in itertools.pairwise(gone)]
    assert max(pauses) == 3_000


def test_a_clock_that_is_behind_makes_no_storm_either() -> None:
    """Whatever is made again looks older than its round: the number in a round is bounded."""
    gone = storm(DeletionPace(clock := Standing()), clock, 10 * MINUTE, server=-MINUTE)
    assert len(gone) <= 64 * 12


def test_all_that_were_there_before_go_at_once() -> None:
    clock = Standing()
    pace, before = DeletionPace(clock), created(clock)
    clock.advance(5 * SECOND)
    assert [pace.count("owner", before) for _ in range(50)] == [None] * 50
    assert pace.count("owner", created(clock)) == clock.wall() + SECOND
    assert pace.count("another", created(clock)) is None


def test_however_many_there_were_before_they_go_at_once_and_those_made_again_do_not() -> None:
    clock = Standing()
    pace, before = DeletionPace(clock), created(clock)
    clock.advance(5 * SECOND)
    assert {pace.count("owner", before, lambda: 1_000) for _ in range(1_000)} == {None}
    assert pace.count("owner", before, lambda: 1_000) == clock.wall() + SECOND
    clock.advance(SECOND)
    made = created(clock)
    assert {pace.count("owner", before, lambda: 100) for _ in range(100)} == {None}
    assert pace.count("owner", made, lambda: 100) == clock.wall() + 2 * SECOND


@pytest.mark.parametrize("owner", ["controller", "group"])
def test_all_pods_of_one_owner_count_as_there(owner: str) -> None:
    kind = ROWS["Pod"]
    cache: Cache[Any, Any] = Cache(Held.of, pod_indexes([kind]))
    watches: Any = SimpleNamespace(jobs={kind.key: SimpleNamespace(cache=cache)})
    context: Any = SimpleNamespace(client=None, full_client=None, fence=None, clock=Standing())
    asked: list[object] = []
    steps = PodSteps(
        context,
        watches,
        PodLookup(watches, [kind]),
        SimpleNamespace(),  # type: ignore[arg-type]
        DeletionPace(context.clock),
        lambda key, at: asked.append(key),
    )
    owners = [{"kind": "ReplicaSet", "name": "set", "uid": "set-uid", "controller": True}]
    labels = {"managed": "true", **({"pod-group-name": "group"} if owner == "group" else {})}
    made = [pod(f"p-{number}", labels=labels) for number in range(100)]
    for number, each in enumerate(made):
        each["metadata"] |= {"resourceVersion": str(number + 1)}
        if owner == "controller":
            each["metadata"]["ownerReferences"] = owners
        cache.applied(each)
    assert all(steps._may_delete(kind, each) for each in made)
    assert not asked


def _started(name: str, **spec: Any) -> Mapping[str, Any]:
    """Return a member of a group of two that a webhook had gated, as its role says."""
    made = pod(
        name,
        labels={"managed": "true", "queue-name": "q", "pod-group-name": "group"},
        notes={"pod-group-total-count": "2", "role-hash": "role"},
        **spec,
    )
    made["spec"]["containers"][0]["image"] = "busybox"
    metadata = {k: v for k, v in made["metadata"].items() if k not in ("uid", "creationTimestamp")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "namespace": NAMESPACE},
        "spec": made["spec"],
    }


async def test_who_runs_without_quota_is_stopped_though_another_member_is_gated(
    tmp_path: Path,
) -> None:
    """As where the others of a group were stopped already and are made again."""
    queue = [flavor(), cluster_queue("cq", 1), local_queue("q", "cq")]
    options = QuotaOptions(kinds=(ROWS["Pod"],))
    async with site(tmp_path, *queue, options=options) as cluster:
        for made in (_started("started"), _started("gated", gated=True)):
            await cluster.client.create(PODS, made, dict)

        async def leaves(name: str) -> bool:
            found = await cluster.client.get(PODS, NAMESPACE, name, dict)
            return "deletionTimestamp" in found["metadata"]

        await cluster.until("the started one leaves", lambda: leaves("started"))
        assert not await leaves("gated")


def test_an_owner_that_was_left_alone_begins_anew() -> None:
    clock = Standing()
    pace = DeletionPace(clock)
    assert len(storm(pace, clock, MINUTE)) == 6
    clock.advance(12 * MINUTE)
    assert storm(pace, clock, MINUTE) == [0, 10, 30, 70, 150, 310]


def test_of_many_owners_the_one_whose_round_is_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deletion_pace, "_KEPT", 2)
    clock = Standing()
    pace = DeletionPace(clock)
    for owner in ("first", "second", "third"):
        assert pace.count(owner, created(clock)) is None
    assert pace.count("third", created(clock)) is not None
    assert pace.count("second", created(clock)) is not None
    assert pace.count("first", created(clock)) is None
