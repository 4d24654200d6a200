"""The ledger of harm is the same whichever write a process dies at: lost, saved, how long away.

A pod saves after a notice and is evicted; half an hour after it was chosen its work runs again.
"""

from __future__ import annotations

from kubeworld.units.durations import HOUR, MINUTE, SECOND
from reprieve.engine.harm_budgets.sums import Amount
from reprieve.records.harm_sums import part_rows
from tests.kube.fakes import FakeAnswer
from tests.scheduling.memory import Memory, Target, memory
from tests.scheduling.site import pod
from tests.scheduling.test_harm_budgets import on_gpus, parts
from tests.scheduling.test_notice import ALLOWED, asking, notices, told

GPU = "nvidia.com/gpu"


def _kills_at(cluster: Memory, kill_at: int | None) -> list[int]:
    """Have the process die at a write, before it or after it; return the count of writes."""
    writes = [0]

    def count(verb: str, where: Target) -> None:
        if where.kind not in ("events.events.k8s.io", "events"):
            writes[0] += 1
            if kill_at is not None and writes[0] - 1 == kill_at // 2:
                cluster.kill()

    def before(verb: str, where: Target) -> FakeAnswer | None:
        if kill_at is not None and kill_at % 2 == 0:
            count(verb, where)
        return None

    def after(verb: str, where: Target) -> None:
        if kill_at is None or kill_at % 2:
            count(verb, where)

    cluster.api.before, cluster.api.after = before, after
    return writes


async def _turn(cluster: Memory, most: int = SECOND) -> None:
    await cluster.pass_time(most)
    if cluster.dead:
        cluster.dead = False
        cluster.start(budgets=True, tells=True, section=ALLOWED)


def _report_saved(cluster: Memory) -> None:
    """Report that the pod has saved, as its speaker does until it is heard."""
    notice = told(cluster, "old") if "old" in cluster.placed() else None
    if notice is not None:
        notices(cluster).saved(notice, cluster.pod("old")["metadata"]["uid"])


async def _story(cluster: Memory, kill_at: int | None) -> tuple[Amount, int]:
    amounts = {"cpu": "4", "memory": "256Gi", "pods": "110", GPU: "4"}
    status = {"allocatable": amounts, "capacity": amounts}
    cluster.api.put("nodes", {"metadata": {"name": "node-0"}, "spec": {}, "status": status})
    writes = _kills_at(cluster, kill_at)
    cluster.start(budgets=True, tells=True, section=ALLOWED)
    cluster.running(on_gpus(asking("old", notice="10m")), "node-0")
    await cluster.pass_time(HOUR)
    began = cluster.clock.wall()
    cluster.create(pod("new", 4, priority="high"))
    for _ in range(60):
        await _turn(cluster)
        _report_saved(cluster)
        cluster.end_all()
        if "new" in cluster.placed():
            break
    cluster.end("new", "old")
    while cluster.clock.wall() < began + 30 * MINUTE:
        await _turn(cluster, min(MINUTE, began + 30 * MINUTE - cluster.clock.wall()))
    cluster.running(on_gpus(pod("again", 4, priority="low")), "node-0")
    for _ in range(30):
        await _turn(cluster)
    found = Amount()
    for part in parts(cluster).values():
        for amount in part_rows(part)[0].values():
            found.merge(amount)
    return found, writes[0]


async def test_the_ledger_is_equal_whichever_write_the_process_dies_at() -> None:
    async with memory() as cluster:
        whole, writes = await _story(cluster, None)
    assert (whole.displacements, whole.lost_device_seconds) == (1, 0)
    back = whole.last + whole.waited_seconds * SECOND
    assert writes > 6
    for kill_at in range(2 * writes):
        async with memory() as cluster:
            found, _ = await _story(cluster, kill_at)
        # One that died before its plan was recorded decides a second later.
        later = (found.last - whole.last) // SECOND
        assert 0 <= later <= 2, kill_at
        assert found.displacements == 1, kill_at
        assert found.last + found.waited_seconds * SECOND == back, kill_at
        expected = whole.saved_device_seconds + 4 * later
        assert (found.saved_device_seconds, found.lost_device_seconds) == (expected, 0), kill_at
