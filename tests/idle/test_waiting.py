"""Why nothing is preempted for a demand is told when the reason changes, counted, and answered."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from reprieve.answers.preemptions.decided_again import decided_again
from reprieve.engine.diagnosis.reasons import Reason
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.model import IdleSnapshot, Policy, Workload
from reprieve.planes.idle.waiting import Waiting
from reprieve.telemetry.decision_log import DecisionLog
from reprieve.telemetry.metrics import Metrics
from reprieve.units.ids import Uid
from tests.engine.rows import NOW, ago, demand, snapshot, workload
from tests.idle.site import Site, container, job

POLICY = Policy()


class World:
    """Everything that a `Waiting` asks for, in memory."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.announced: list[tuple[str, str]] = []
        self.rows: tuple[Workload, ...] = ()
        self.claims: dict[Uid, Any] = {}
        everything: Any = self
        self.clock: Any = SimpleNamespace(wall=lambda: NOW, monotonic=lambda: NOW)
        self.written: list[bytes] = []
        self.decision_log = DecisionLog(self.clock, self.written.append)
        self.start = SimpleNamespace(policy=POLICY)
        self.waiting = Waiting(everything, everything, everything, self.snapshot)

    def snapshot(self) -> IdleSnapshot:
        return snapshot(*self.rows, claims=self.claims)

    def announce(self, about: Any, text: Any) -> None:
        assert text.reason == "Waiting"
        self.announced.append((about.name, text.message.partition(":")[0]))

    def pods_of(self, root: Any) -> list[Any]:
        return []

    def get(self, key: str) -> Any:
        found = {row.key: row for row in self.rows}.get(key)  # type: ignore[call-overload]
        return found and SimpleNamespace(root=found.root)

    def __iter__(self) -> Any:
        return iter(
            SimpleNamespace(key=row.key, ref=row.ref, root=row.root, status=row.status)
            for row in self.rows
        )

    def evaluated(self, *rows: Workload) -> None:
        self.rows = rows
        seen = self.snapshot()
        self.waiting.record(seen, evaluate(seen, POLICY, NOW), NOW)

    def counted(self) -> dict[str, float]:
        return {
            sample.labels["reason"]: sample.value
            for metric in self.metrics.registry.collect()
            if metric.name == "reprieve_waiting_units"
            for sample in metric.samples
            if sample.labels["plane"] == "idle" and sample.value
        }


def test_a_reason_is_told_once_for_each_change_and_counted() -> None:
    world = World()
    young, old = workload(idle_since=ago(5)), workload()
    for _ in range(3):
        world.evaluated(young, demand())
    assert world.announced == [("demand", "NotIdleYet")]
    assert world.counted() == {"NotIdleYet": 1}
    world.evaluated(workload(gpus=1), demand())
    assert world.announced[1:] == [("demand", "WouldNotHelp")]
    world.evaluated(old, demand())
    assert world.counted() == {}
    assert len(world.announced) == 2


def test_a_demand_has_a_line_for_each_reason_and_one_when_it_waits_no_longer() -> None:
    world = World()
    for young in (workload(idle_since=ago(5)), workload(gpus=1)):
        for _ in range(2):
            world.evaluated(young, demand())
    for _ in range(2):
        world.evaluated(workload())
    said = [json.loads(line) for line in world.written]
    samples = [each for each in said if "input" in each]
    assert [(each["name"], each["reason"]) for each in samples] == [("demand", "NotIdleYet")]
    assert decided_again("idle", samples[0]["input"]) == "nothing is preempted."
    found = [each for each in said if "input" not in each]
    assert [(each["previous"], each["reason"]) for each in found] == [
        ("", "NotIdleYet"),
        ("NotIdleYet", "WouldNotHelp"),
        ("WouldNotHelp", ""),
    ]
    (about,) = {(each["plane"], each["kind"], each["namespace"], each["name"]) for each in found}
    assert about == ("idle", "GpuWorkload", "ml-team", "demand")


def test_who_asks_is_answered_about_each_that_waits() -> None:
    world = World()
    world.rows = (workload(idle_since=ago(5)), demand(), demand("large", gpus=9))
    assert {key: said.reason for key, said in world.waiting.diagnoses().items()} == {
        "ml-team/demand": Reason.NOT_IDLE_YET,
        "ml-team/large": Reason.WOULD_NOT_HELP,
    }
    found = world.waiting.diagnosis("ml-team", "demand")
    assert found is not None and found.earliest == ago(-595)
    assert world.waiting.diagnosis("ml-team", "nobody") is None
    said = world.waiting.diagnosis("ml-team", "w")
    assert said is not None and said.reason is Reason.NO_PRESSURE


async def test_a_demand_is_told_on_its_gpuworkload(site: Site) -> None:
    await site.create(job("idle", container(gpu=4), enabled="true"))
    await site.run()
    await site.until_phase("Job/idle", "Idle")
    await site.create(job("whole", container(gpu=16), enabled="true"))
    told = await site.until_event("GpuWorkload/job-whole", "Waiting", "WouldNotHelp")
    assert told == "WouldNotHelp: It would not fit even if idle work was preempted"
