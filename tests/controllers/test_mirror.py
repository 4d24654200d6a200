"""What several planes read of a kind is listed, watched and decoded once, for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from kubeworld.units.clock import VirtualClock
from kubeworld.units.durations import MINUTE, SECOND
from reprieve.api.core import Node, Pod
from reprieve.api.kueue import Workload
from reprieve.api.scheduling import NodeObject, PodObject
from reprieve.kube.objects import identity_of
from reprieve.kube.reflector import Health
from reprieve.kube.resource import PODS
from reprieve.planes.common.mirrors.forms import WIDER
from reprieve.planes.common.mirrors.mirror import Followed, Mirror
from reprieve.planes.idle.watches import Watches as IdleWatches
from reprieve.planes.quota.watches import WORKLOADS
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
    site, one, other = Site(), Observer(), Observer()
    async with site.running(site.follow(one, Pod), site.follow(other, Node)):
        assert (one.types, other.types) == ({Pod}, {Node})
    assert len(site.pods.lists) == 2


async def test_who_wants_objects_whole_reads_them_with_those_who_read_a_struct() -> None:
    site, idle, quota = Site(), Observer(), Names()
    async with site.running(site.follow(idle), site.mirror.follow(PODS, dict[str, Any], quota)):
        site.pods.put(queued_pod("b"))
        site.pods.remove("work", "a")
        await site.settle()
    assert idle.types == {Pod}
    assert idle.told == quota.told
    assert idle.told == [("replaced", ["a"]), ("applied", ["b"]), ("deleted", ["a"])]
    assert quota.read == [dict, dict, dict]
    assert (len(site.pods.lists), len(site.pods.watches)) == (1, 1)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside others"])
async def test_who_wants_some_objects_whole_gets_structs_of_the_others(beside: bool) -> None:
    site, idle, quota = Site(), Observer(), Names()
    site.pods.put(queued_pod("q"))
    followed = [site.mirror.follow(PODS, Pod, quota, whole=queued)]
    if beside:
        followed.append(site.follow(idle, PodObject))
    struct = PodObject if beside else Pod
    async with site.running(*followed):
        site.pods.put(pod("b"))
        site.pods.put(queued_pod("c"))
        site.pods.remove("work", "q")
        await site.settle()
    told = [("replaced", ["a", "q"]), ("applied", ["b"]), ("applied", ["c"]), ("deleted", ["q"])]
    assert quota.told == told
    assert quota.read == [struct, dict, struct, dict, dict]
    assert (idle.told, idle.types) == ((told, {PodObject}) if beside else ([], set()))
    assert (len(site.pods.lists), len(site.pods.watches)) == (1, 1)


async def test_an_object_that_cannot_be_read_costs_the_others_nothing_where_some_come_whole() -> (
    None
):
    site, idle, quota = Site(), Observer(), Names()
    odd = pod("odd")
    odd["spec"] = "no spec"
    site.pods.put(odd)
    one = site.mirror.follow(PODS, Pod, quota, whole=queued)
    async with site.running(one, site.follow(idle, name="idle")):
        site.pods.put({**odd, "metadata": {**odd["metadata"], "name": "odd-too", "uid": "2"}})
        site.pods.put(pod("b"))
        await site.settle()
    assert idle.told == quota.told == [("replaced", ["a"]), ("applied", ["b"])]
    assert [name for name, _ in site.reports] == ["idle", "idle"]
    assert ["is skipped" in str(trouble) for _, trouble in site.reports] == [True, True]


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
    """A sink that takes objects in either form, and writes down in which each came."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []
        self.read: list[type] = []

    def received(self, objects: list[Any]) -> list[Any]:
        return [self._name(each) for each in objects]

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        del resource_version
        self.told.append(("replaced", objects))

    def applied(self, obj: Any) -> None:
        self.told.append(("applied", [self._name(obj)]))

    def deleted(self, obj: Any) -> None:
        self.told.append(("deleted", [self._name(obj)]))

    def _name(self, obj: Any) -> str:
        self.read.append(type(obj))
        return identity_of(obj).name


def queued_pod(name: str) -> Any:
    found = pod(name)
    found["metadata"]["labels"] = {"queued": "true"}
    return found


def queued(found: Pod) -> bool:
    return "queued" in (found.metadata.labels or {})


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
