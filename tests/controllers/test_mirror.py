"""What several planes read of a kind is listed, watched and decoded once, for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from reprieve.api.core import Node, Pod
from reprieve.api.kueue import Workload
from reprieve.api.scheduling import NodeObject, PodObject
from reprieve.kube.reflector import Health
from reprieve.kube.resource import PODS
from reprieve.planes.common.mirror import WIDER, Followed, Mirror
from reprieve.planes.idle.watches import Watches as IdleWatches
from reprieve.planes.quota.watches import WORKLOADS
from reprieve.units.clock import VirtualClock
from reprieve.units.durations import MINUTE, SECOND
from tests.background import in_background
from tests.kube.fakes import Collection, FakeWire, client_over, pod, refusal


class Observer:
    """A sink that writes down what it is told, and of which type it was."""

    def __init__(self, *, fails_at: str = "") -> None:
        self.told: list[tuple[str, list[str]]] = []
        self.types: set[type] = set()
        self.fails_at = fails_at

    def received(self, objects: list[Any]) -> list[Any]:
        self.types |= {type(each) for each in objects}
        self._fail("received")
        return [each.metadata.name for each in objects]

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        del resource_version
        self._fail("replaced")
        self.told.append(("replaced", objects))

    def applied(self, obj: Any) -> None:
        self._fail("applied")
        self.told.append(("applied", [obj.metadata.name]))

    def deleted(self, obj: Any) -> None:
        self._fail("deleted")
        self.told.append(("deleted", [obj.metadata.name]))

    def _fail(self, call: str) -> None:
        if self.fails_at == call:
            self.fails_at = ""
            raise RuntimeError("a fault of ours")


class Site:
    """Pods on a server, and a mirror of them."""

    def __init__(self) -> None:
        self.pods = Collection(PODS)
        self.pods.put(pod("a"))
        self.clock = VirtualClock()
        self.mirror = Mirror(client_over(FakeWire(self.pods.handle), self.clock), self.clock)
        self.reports: list[tuple[str, Exception]] = []
        self.restarts: list[str] = []

    def follow(self, sink: Observer, type: type = Pod, name: str = "") -> Followed[Any]:
        return self.mirror.follow(
            PODS,
            type,
            sink,
            report=lambda trouble: self.reports.append((name, trouble)),
            restarted=self.restarts.append,
        )

    async def settle(self, nanoseconds: int = 0) -> None:
        await self.clock.advance(nanoseconds, settle=80)

    @asynccontextmanager
    async def running(self, *followed: Followed[Any]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for each in followed:
                await stack.enter_async_context(in_background(each.run()))
            await self.settle()
            yield


async def test_all_are_told_of_one_list_and_one_watch() -> None:
    site, idle, scheduling = Site(), Observer(), Observer()
    one, other = site.follow(idle), site.follow(scheduling)
    assert not one.synced.is_set() and one.health is Health.STARTING
    async with site.running(one, other):
        assert one.synced.is_set() and other.synced.is_set()
        assert one.health is other.health is Health.WATCHING
        site.pods.put(pod("b"))
        site.pods.remove("work", "a")
        await site.settle()
    assert (
        idle.told
        == scheduling.told
        == [
            ("replaced", ["a"]),
            ("applied", ["b"]),
            ("deleted", ["a"]),
        ]
    )
    assert (len(site.pods.lists), len(site.pods.watches)) == (1, 1)


@pytest.mark.parametrize("types", [(Pod, PodObject), (PodObject, Pod)])
async def test_an_object_is_decoded_into_the_type_of_the_one_that_reads_most_of_it(
    types: tuple[type, type],
) -> None:
    site, observers = Site(), (Observer(), Observer())
    followed = [site.follow(sink, each) for sink, each in zip(observers, types, strict=True)]
    async with site.running(*followed):
        assert [sink.types for sink in observers] == [{PodObject}, {PodObject}]
    assert len(site.pods.lists) == 1


async def test_who_follows_alone_gets_the_type_that_it_asked_for() -> None:
    site, idle = Site(), Observer()
    async with site.running(site.follow(idle, Pod)):
        assert idle.types == {Pod}


async def test_types_that_have_nothing_to_do_with_each_other_are_read_for_themselves() -> None:
    site, idle, quota = Site(), Observer(), Names()
    async with site.running(site.follow(idle), site.mirror.follow(PODS, dict[str, Any], quota)):
        assert (idle.told, quota.names) == ([("replaced", ["a"])], ["a"])
    assert len(site.pods.lists) == 2


async def test_who_comes_later_gets_a_list_and_misses_nothing() -> None:
    site, idle, quota = Site(), Observer(), Observer()
    async with site.running(site.follow(idle)):
        site.pods.put(pod("b"))
        await site.settle()
        async with site.running(site.follow(quota)):
            assert quota.told == [("replaced", ["a", "b"])]
            site.pods.put(pod("c"))
            await site.settle()
        site.pods.put(pod("d"))
        await site.settle()
    assert quota.told[1:] == [("applied", ["c"])]
    assert idle.told[-3:] == [("replaced", ["a", "b"]), ("applied", ["c"]), ("applied", ["d"])]


async def test_a_kind_that_nobody_follows_any_more_is_not_read() -> None:
    site, idle = Site(), Observer()
    async with site.running(site.follow(idle)):
        pass
    site.pods.put(pod("b"))
    await site.settle(MINUTE)
    assert idle.told == [("replaced", ["a"])]
    assert len(site.pods.watches) == 1
    async with site.running(site.follow(idle)):
        assert idle.told[1:] == [("replaced", ["a", "b"])]


@pytest.mark.parametrize("call", ["applied", "deleted"])
async def test_what_one_fails_at_costs_the_others_nothing(call: str) -> None:
    site, odd, well = Site(), Observer(fails_at=call), Observer()
    async with site.running(site.follow(odd), site.follow(well)):
        site.pods.put(pod("b"))
        site.pods.remove("work", "a")
        site.pods.put(pod("c"))
        await site.settle()
    whole = [("replaced", ["a"]), ("applied", ["b"]), ("deleted", ["a"]), ("applied", ["c"])]
    assert well.told == whole
    assert odd.told == [
        each for each in whole if each != (call, ["b"] if call == "applied" else ["a"])
    ]


@pytest.mark.parametrize("call", ["received", "replaced"])
async def test_a_list_that_one_fails_at_is_taken_by_the_others_and_read_again(call: str) -> None:
    site, odd, well = Site(), Observer(fails_at=call), Observer()
    one, other = site.follow(odd), site.follow(well)
    async with site.running(one, other):
        assert other.synced.is_set() and not one.synced.is_set()
        await site.settle(5 * SECOND)
        assert one.synced.is_set()
    assert odd.told == [("replaced", ["a"])]
    assert well.told == [("replaced", ["a"])] * 2


async def test_each_is_told_what_the_kind_suffers_from_and_restarts_count_once() -> None:
    site = Site()
    site.pods.refuse = lambda request: refusal(403, "Forbidden", "no")
    one, other = site.follow(Observer(), name="idle"), site.follow(Observer(), name="quota")
    async with site.running(one, other):
        assert one.health is other.health is Health.FORBIDDEN
        assert one.error is other.error is not None
    assert [name for name, _ in site.reports] == ["idle", "quota"]
    assert site.restarts == ["Forbidden"]


class Names:
    """A sink of plain dicts."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def received(self, objects: list[Any]) -> list[Any]:
        return objects

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        del resource_version
        self.names = [each["metadata"]["name"] for each in objects]

    def applied(self, obj: Any) -> None: ...

    def deleted(self, obj: Any) -> None: ...


@pytest.mark.parametrize(("narrow", "wide"), WIDER.items(), ids=lambda each: each.__name__)
def test_the_wider_type_has_all_that_the_narrower_one_has(narrow: type, wide: type) -> None:
    found = lacking(inspect.type_info(narrow), inspect.type_info(wide), narrow.__name__)
    assert found == []


def test_fields_that_are_missing_are_noticed() -> None:
    class Other(msgspec.Struct):
        uid: str = ""

    found = lacking(inspect.type_info(Pod), inspect.type_info(NodeObject), "Pod")
    assert "Pod.spec.containers" in found
    assert lacking(inspect.type_info(Node), inspect.type_info(Other), "Node") != []


def lacking(narrow: Any, wide: Any, where: str) -> list[str]:
    """Return the fields of one type that another one lacks, or reads as something else."""
    if isinstance(narrow, inspect.UnionType) and isinstance(wide, inspect.UnionType):
        narrow, wide = (
            [each for each in union.types if not isinstance(each, inspect.NoneType)]
            for union in (narrow, wide)
        )
        if len(narrow) == len(wide) == 1:
            return lacking(narrow[0], wide[0], where)
        return [] if narrow == wide else [where]
    if isinstance(narrow, inspect.ListType) and isinstance(wide, inspect.ListType):
        return lacking(narrow.item_type, wide.item_type, where)
    if isinstance(narrow, inspect.StructType) and isinstance(wide, inspect.StructType):
        fields = {field.encode_name: field for field in wide.fields}
        missing = [f"{where}.{f.name}" for f in narrow.fields if f.encode_name not in fields]
        return missing + [
            each
            for f in narrow.fields
            if f.encode_name in fields and f.name == fields[f.encode_name].name
            for each in lacking(f.type, fields[f.encode_name].type, f"{where}.{f.name}")
        ]
    return [] if narrow == wide else [where]


async def test_idle_and_quota_read_workloads_by_one_reflector() -> None:
    mirror = Site().mirror
    queued = IdleWatches(
        mirror, VirtualClock(), (), nodes=False, services=False, report=lambda error: None
    )
    queued.read_kueue_as("v1beta2")
    quota = mirror.follow(WORKLOADS, Workload, Observer())
    feed = mirror.join(quota)
    assert mirror.join(queued.kueue.reflector) is feed
    for each in (quota, queued.kueue.reflector):
        await mirror.leave(feed, each)
