"""Small jobs, policies and studies for the tests of the replay."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from reprieve.cli.simulate import simulate
from reprieve.engine.quota.model import Policy, Preemption, QueueingStrategy
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Life, Replay
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.replaying.work import Checkpointing, WorkModel
from reprieve.simulation.trace import Job

SECOND = 1_000_000_000
ROOT = Path(__file__).parents[2]
TRACES = ROOT.parent / "shared" / "traces" / "philly-vc"
STUDY = """\
cluster: {nodes: 2, devices: 4}
workload: {trace: csv, path: trace.csv, load: [1.2], seeds: [0, 1, 2]}
tenants: {count: 2, zipf: 1, priorities: {0: 0.6, 100: 0.4}}
work: {checkpoint: 10m, save: 10s, restart: 1m}
policies:
  none: {preemption: Never}
  classical: {}
"""


def job(
    name: str,
    arrival_s: float,
    devices: int,
    duration_s: float,
    tenant: str = "a",
    priority: int = 0,
) -> Job:
    return Job(
        name, int(arrival_s * SECOND), devices, int(duration_s * SECOND), "", tenant, priority
    )


def never(strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> PolicySpec:
    return PolicySpec("never", Preemption(), strategy)


def classical() -> PolicySpec:
    return PolicySpec("classical", Preemption(Policy.LOWER_PRIORITY, Policy.ANY))


def work(
    checkpoint: float = 0, save: float = 0, restart: float = 0, grace: float = 0, evict: float = 0
) -> WorkModel:
    given = (checkpoint, save, restart, grace, evict)
    return Checkpointing(*(int(each * SECOND) for each in given))


def played(
    jobs: Sequence[Job],
    policy: PolicySpec,
    model: WorkModel | None = None,
    devices: int = 4,
    tenants: Sequence[str] = ("a", "b"),
) -> Replay:
    ordered = sorted(jobs, key=lambda each: each.arrival)
    return replay(ordered, policy, model or work(), tenants, (1, devices))


def life_of(done: Replay, name: str) -> Life:
    return next(life for life in done.lives if life.job.id == name)


def random_jobs(random: Random, count: int, devices: int, tenants: str = "ab") -> list[Job]:
    """Jobs that contend: about one and a half times of what the devices can do."""
    found, now = [], 0
    for number in range(count):
        wide = random.choice([1, 1, 2, devices // 2, devices])
        length = random.randint(10, 2_000)
        found.append(
            job(
                f"j{number}",
                now,
                wide,
                length,
                random.choice(tenants),
                random.choice([0, 0, 100, 1000]),
            )
        )
        now += random.choice([0, random.randint(0, 2 * 400 // 1)])
    return found


def study_in(folder: Path, text: str = STUDY, jobs: int = 60, seed: int = 7) -> Path:
    """Write a study with a trace beside it; return the study's path."""
    random = Random(seed)
    lines = ["arrival_s,gpus,duration_s,model"]
    now = 0
    for _ in range(jobs):
        lines.append(f"{now},{random.choice([1, 1, 2, 4, 8])},{random.randint(60, 20_000)},net")
        now += random.randint(0, 6_000)
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def traces() -> Path:
    """Return the folder of real traces; the test is skipped where there is none."""
    if not TRACES.is_dir():
        pytest.skip("absent: job traces beside the project (../shared/traces)")
    return TRACES


@dataclass(frozen=True)
class Played:
    """A study as the command has played it: its report, and the rows of its results."""

    report: str
    rows: list[dict[str, str]]


def same_twice(folder: Path, study: Path) -> tuple[str, list[Played]]:
    """Play a study twice; return its decisions, which are the same, and either outcome."""
    outcomes, decisions = [], []
    for name in ("one", "two"):
        out = folder / name / "report.html"
        out.parent.mkdir()
        arguments = [str(study), "-o", str(out), "--workers", "1"]
        assert CliRunner().invoke(simulate, arguments).exit_code == 0
        decisions.append(out.with_name("decisions.jsonl").read_text())
        with out.with_name("results.csv").open() as lines:
            outcomes.append(Played(out.read_text(), list(csv.DictReader(lines))))
    assert decisions[0] == decisions[1]
    return decisions[0], outcomes
