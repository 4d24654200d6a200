"""Nobody makes himself immune: who patches his own pod goes, who cannot be evicted is passed by.

Of two victims alike the other one is taken where the deletion of the first is refused.
"""

from __future__ import annotations

import pytest

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from reprieve.kube.errors import Unreachable
from tests.kube.fakes import FakeAnswer, refusal
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import NAMESPACE, group, pod

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_WEBHOOK = 'admission webhook "immune.example.com" denied the request: '
_POLICY = (
    "pods \"low-0\" is forbidden: ValidatingAdmissionPolicy 'immune' with binding 'immune' "
    "denied request: "
)


def _patches_itself(cluster: Memory, *names: str, **also: object) -> None:
    """Whoever owns these pods is faster than every write to them, and writes once more."""

    def before(verb: str, where: Target) -> FakeAnswer | None:
        if where.kind == "pods" and where.name in names and verb in ("patch", "delete"):
            found = cluster.api.objects["pods"].get((NAMESPACE, where.name))
            if found is not None:
                turn = str(len(cluster.api.writes))
                metadata = {**found["metadata"], "annotations": {"turn": turn, **also}}
                cluster.api.put("pods", {**found, "metadata": metadata})
        return None

    cluster.api.before = before


async def _bound(cluster: Memory, *names: str, most: int = MINUTE) -> None:
    def over() -> bool:
        cluster.end_all()
        return set(names) <= cluster.placed().keys()

    await cluster.until(over, most)


async def test_who_patches_his_own_pod_makes_way_all_the_same() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(pod("low", 4, priority="low"), "node-0")
        cluster.start()
        await cluster.settle()
        _patches_itself(cluster, "low")
        cluster.create(pod("high", 4, priority="high"))
        await _bound(cluster, "high", most=20 * SECOND)
        assert cluster.api.deleted == {"low": 1}
        assert len(cluster.intents()) == 1


async def test_a_gang_whose_members_all_patch_themselves_goes_as_a_whole() -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        cluster.create(group("unit", mode="all", priority="low"))
        names = ["low-0", "low-1"]
        for number, name in enumerate(names):
            cluster.running(pod(name, 4, group="unit", priority="low"), f"node-{number}")
        cluster.start()
        await cluster.settle()
        _patches_itself(cluster, *names)
        cluster.create(pod("high", 4, priority="high"))
        await _bound(cluster, "high", most=20 * SECOND)
        assert cluster.api.deleted == dict.fromkeys(names, 1)


async def test_who_is_no_victim_any_more_when_read_again_is_spared() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(pod("low", 4, priority="low"), "node-0")
        cluster.start()
        await cluster.settle()

        def before(verb: str, where: Target) -> FakeAnswer | None:
            found = cluster.api.objects["pods"].get((NAMESPACE, where.name))
            if where.name == "low" and verb in ("patch", "delete") and found is not None:
                cluster.api.put("pods", {**found, "spec": {**found["spec"], "priority": 200_000}})
            return None

        cluster.api.before = before
        cluster.create(pod("high", 4, priority="high"))
        await cluster.pass_time(20 * SECOND)
        assert not cluster.api.deleted


class Refuses:
    """Refuses what is asked of the first pod of which it is asked, and of no other."""

    def __init__(self, verb: str, code: int, before: str = _WEBHOOK) -> None:
        self._verb, self._code = verb, code
        self._message = before + 'cannot delete resource "pods" in API group "" any more'
        self.name = ""

    def __call__(self, verb: str, where: Target) -> FakeAnswer | None:
        if (verb, where.kind) != (self._verb, "pods") or not where.name.startswith("low"):
            return None
        self.name = self.name or where.name
        if where.name != self.name:
            return None
        if not self._code:
            raise Unreachable("no answer in time")
        details = {"retryAfterSeconds": 60} if self._message.startswith(_WEBHOOK) else {}
        return refusal(self._code, _REASONS[self._code], self._message, details=details)


def _by_webhook(*codes: int) -> list[tuple[int, str]]:
    return [(code, _WEBHOOK) for code in codes]


def _by_policy(*codes: int) -> list[tuple[int, str]]:
    return [(code, _POLICY) for code in codes]


@pytest.mark.parametrize("verb", ["delete", "patch"])
@pytest.mark.parametrize(
    ("code", "before"),
    [
        *_by_webhook(403, 404, 429, 503),
        *_by_policy(401, 403, 413, 422),
        *((code, "") for code in (0, 404, 422, 429, 500, 503)),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in _by_webhook(400, 401, 409, 410, 422, 500, 504)
        ),
    ],
)
async def test_whose_eviction_is_refused_is_passed_by_and_an_equal_one_goes(
    code: int, before: str, verb: str
) -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        cluster.running(pod("low-0", 4, priority="low"), "node-0")
        cluster.running(pod("low-1", 4, priority="low"), "node-1")
        cluster.start()
        await cluster.settle()
        # Whichever of the two is chosen first.
        cluster.api.before = refuses = Refuses(verb, code, before)
        cluster.create(pod("high", 4, priority="high"))
        await _bound(cluster, "high")
        await cluster.pass_time(SECOND)
        (kept,) = {"low-0", "low-1"} & cluster.pods.keys()
        assert kept == refuses.name and sum(cluster.api.deleted.values()) == 1
        told = cluster.events("EvictionRefused")
        assert {each["regarding"]["name"] for each in told} == {kept, "high"}
        assert len(cluster.intents()) == 2


@pytest.mark.parametrize("code", [500, pytest.param(403, marks=pytest.mark.slow)])
async def test_where_nobody_else_is_the_refused_one_is_tried_again_ever_more_seldom(
    code: int,
) -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        cluster.running(pod("low", 4, priority="low"), "node-0")
        cluster.start()
        await cluster.settle()
        cluster.api.before = Refuses("delete", code)
        cluster.create(pod("high", 4, priority="high"))
        await cluster.pass_time(6 * HOUR)
        tries = sum((verb, w.name) == ("delete", "low") for verb, w in cluster.api.writes)
        assert 10 <= tries <= 60
        (record,) = cluster.intents()
        assert record["status"]["phase"] == "Abandoned" and record["spec"]["attempt"] >= 5
        said = cluster.condition(cluster.pod("high"), "PodScheduled")[2]
        assert "their eviction was refused" in said
        cluster.api.before = lambda verb, where: None
        await _bound(cluster, "high", most=2 * HOUR)


class Overloaded:
    """Refuses everybody's writes from the first deletion of a pod on, with `reads` reads, too."""

    def __init__(self, cluster: Memory, code: int, *, reads: bool) -> None:
        self._api, self._code, self._reads = cluster.api, code, reads
        self.began = self.over = False
        cluster.api.before = self

    def __call__(self, verb: str, where: Target) -> FakeAnswer | None:
        self.began |= (verb, where.kind) == ("delete", "pods")
        self._api.away = self._reads and self.began and not self.over
        if self.over or not self.began:
            return None
        return refusal(self._code, _REASONS[self._code], "too many requests")

    def end(self) -> None:
        self.over, self._api.away = True, False


@pytest.mark.parametrize(
    ("code", "reads", "most"),
    [
        (429, True, 0),
        (503, False, 6),
        pytest.param(503, True, 0, marks=pytest.mark.slow),
        pytest.param(429, False, 6, marks=pytest.mark.slow),
    ],
)
async def test_a_server_that_answers_so_to_everybody_makes_few_immune(
    caplog: pytest.LogCaptureFixture, code: int, reads: bool, most: int
) -> None:
    names = [f"low-{number}" for number in range(12)]
    async with memory() as cluster:
        cluster.nodes([4] * len(names))
        for number, name in enumerate(names):
            cluster.running(pod(name, 4, priority="low"), f"node-{number}")
        cluster.start()
        await cluster.settle()
        overloaded = Overloaded(cluster, code, reads=reads)
        members = [f"high-{number}" for number in range(len(names))]
        cluster.create(group("high", min_count=len(names), priority="high"))
        cluster.create(*(pod(name, 4, group="high", priority="high") for name in members))
        await cluster.pass_time(10 * MINUTE)
        assert overloaded.began and not cluster.api.deleted
        overloaded.end()
        await _bound(cluster, *members, most=2 * MINUTE)
        assert cluster.api.deleted == dict.fromkeys(names, 1)
        said = [line for line in caplog.messages if "cannot be evicted" in line]
        assert len({name for name in names for line in said if f"/{name} " in line}) <= most


@pytest.mark.parametrize("seconds", [3_601, 10**9, 2**40])
@pytest.mark.parametrize("unit", [False, True])
async def test_whose_grace_is_too_long_is_passed_by_where_another_can_go(
    seconds: int, unit: bool
) -> None:
    async with memory() as cluster:
        cluster.nodes([4, 4])
        member = {"group": "unit"} if unit else {}
        if unit:
            cluster.create(group("unit", min_count=1, mode="all", priority="low"))
        # It started last, so that it is the first to be chosen.
        cluster.running(pod("low-0", 4, priority="low"), "node-0")
        await cluster.pass_time(MINUTE)
        slow = pod("low-1", 4, priority="low", terminationGracePeriodSeconds=seconds, **member)
        cluster.running(slow, "node-1")
        cluster.start()
        cluster.create(pod("high", 4, priority="high"))
        await _bound(cluster, "high", most=MINUTE)
        assert cluster.api.deleted == {"low-0": 1}
        assert cluster.condition(cluster.pod("low-1"), "DisruptionTarget")[0] != "True"


async def test_whose_grace_is_too_long_goes_where_nobody_else_can_and_other_room_is_taken() -> None:
    async with memory() as cluster:
        cluster.nodes([4])
        slow = pod("low", 4, priority="low", terminationGracePeriodSeconds=2**40)
        cluster.running(slow, "node-0")
        cluster.start()
        cluster.create(pod("high", 4, priority="high"))
        await cluster.until(lambda: cluster.victims() == {"low"}, 5 * MINUTE)
        cluster.api.put(
            "nodes",
            {
                **cluster.api.objects["nodes"]["", "node-0"],
                "metadata": {"name": "node-1", "labels": {"kubernetes.io/hostname": "node-1"}},
            },
        )
        cluster.running(pod("other", 4, priority="low"), "node-1")
        await cluster.until(lambda: "other" in cluster.victims(), 70 * MINUTE)
        cluster.end("other")
        await cluster.until(lambda: "high" in cluster.placed(), MINUTE)
