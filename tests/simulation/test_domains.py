"""Replays on nodes with domains: jobs that ask for one get it, or wait, and none waits beside room.

The judge below knows nodes and domains as plain numbers, and tries all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from reprieve.cli.simulate import simulate
from reprieve.simulation.domains import Domains
from reprieve.simulation.policy import PolicySpec
from reprieve.simulation.replaying.lives import Admitted, Preempted, Replay
from reprieve.simulation.replaying.quota_cluster import key_of
from reprieve.simulation.replaying.replay import replay
from reprieve.simulation.study import read_study
from reprieve.simulation.trace import Job
from reprieve.units.errors import UsageError
from tests.simulation.building import (
    SECOND,
    STUDY,
    classical,
    job,
    life_of,
    never,
    random_jobs,
    same_twice,
    study_in,
    work,
)

RACKS = Domains((("block", 4), ("rack", 2)))


def requiring(one: Job, level: str = "rack") -> Job:
    return replace(one, required=level)


def preferring(one: Job, level: str = "rack") -> Job:
    return replace(one, preferred=level)


def played(
    jobs: Sequence[Job],
    policy: PolicySpec,
    nodes: int = 4,
    devices: int = 4,
    domains: Domains = RACKS,
) -> Replay:
    ordered = sorted(jobs, key=lambda each: each.arrival)
    return replay(ordered, policy, work(), ("a", "b"), (nodes, devices), domains=domains)


def nodes_of(done: Replay) -> dict[str, tuple[str, ...]]:
    return {each.job: each.nodes for each in done.decisions if isinstance(each, Admitted)}


def test_a_job_that_requires_a_rack_waits_for_one_while_another_prefers_it() -> None:
    """Each rack of two nodes has one node free: eight devices in all, four in each rack."""
    jobs = [
        job("left", 0, 4, 100),
        requiring(job("right", 1, 8, 50)),
        preferring(job("anywhere", 10, 8, 20)),
        requiring(job("rack", 11, 8, 30)),
    ]
    # The second holds a rack of its own until 51, the third would need more than is left of one.
    done = played(jobs, never())
    assert nodes_of(done)["a/right"] == ("node-2", "node-3")
    assert life_of(done, "anywhere").started == 51 * SECOND
    assert nodes_of(done)["a/anywhere"] == ("node-2", "node-3")
    assert life_of(done, "rack").started == 71 * SECOND
    spread = [
        job("one", 0, 3, 100),
        requiring(job("pair", 1, 8, 100)),
        preferring(job("wide", 2, 4, 10)),
    ]
    assert nodes_of(played(spread, never()))["a/wide"] == ("node-1",)


def test_a_preferred_level_is_left_where_no_domain_has_room() -> None:
    jobs = [
        requiring(job("left", 0, 5, 100)),
        requiring(job("right", 1, 5, 100)),
        preferring(job("wide", 2, 5, 10)),
        requiring(job("strict", 3, 5, 10)),
    ]
    done = played(jobs, never())
    assert set(nodes_of(done)["a/left"]) == {"node-0", "node-1"}
    # Three devices are free on the second node of each rack: the fourth device of a node is not.
    assert life_of(done, "wide").started == 100 * SECOND
    assert life_of(done, "wide").together == 1
    assert life_of(done, "strict").started == 101 * SECOND


def test_only_the_job_whose_rack_helps_makes_way() -> None:
    jobs = [
        requiring(job("young", 0, 8, 1000)),
        job("small", 1, 1, 1000),
        job("other", 2, 2, 1000),
        requiring(job("urgent", 10, 8, 10, priority=100)),
    ]
    done = played(jobs, classical())
    gone = [v.job for e in done.decisions if isinstance(e, Preempted) for v in e.victims]
    assert "a/young" in gone or {"a/small", "a/other"} <= set(gone)
    assert len({*nodes_of(done)["a/urgent"]}) == 2


def widths(one: Job, devices: int) -> list[int]:
    whole, rest = divmod(one.devices, devices)
    return [devices] * whole + [rest] * bool(rest)


def has_room(one: Job, free: Mapping[int, int], devices: int, domains: Domains) -> bool:
    """Tell whether a job fits on what is free, in one domain of the level that it requires."""
    sizes = dict(domains.levels)
    size = sizes[one.required] if one.required else len(free)
    for begin in range(0, len(free), size):
        left = [free[n] for n in range(begin, min(begin + size, len(free)))]
        for width in widths(one, devices):
            fits = [room for room in left if room >= width]
            if not fits:
                break
            left.remove(min(fits))
            left.append(min(fits) - width)
        else:
            return True
    return False


def judged(done: Replay, nodes: int, devices: int, domains: Domains) -> Counter[str]:
    """Hold a replay without preemption against the nodes, instant by instant."""
    told: Counter[str] = Counter()
    lives = {key_of(life.job): life for life in done.lives}
    free = dict.fromkeys(range(nodes), devices)
    where: dict[str, list[int]] = {}
    decisions = list(done.decisions)

    def change(key: str, sign: int) -> None:
        one = lives[key].job
        for number, width in zip(where[key], widths(one, devices), strict=True):
            free[number] += sign * width
            assert 0 <= free[number] <= devices, (key, number)

    instants = {each.at for each in decisions}
    for life in done.lives:
        instants |= {life.job.arrival, life.finished or 0}
    for now in sorted(instants):
        for key, life in lives.items():
            if life.finished == now:
                change(key, 1)
                del where[key]
        while decisions and decisions[0].at == now:
            one = decisions.pop(0)
            assert isinstance(one, Admitted)
            where[one.job] = [int(name.removeprefix("node-")) for name in one.nodes]
            change(one.job, -1)
            asked = lives[one.job].job
            if asked.required:
                assert domains.together(asked.required, where[one.job])
                told["required"] += 1
            if asked.preferred:
                told[f"together {domains.together(asked.preferred, where[one.job])}"] += 1
        for key, life in lives.items():
            waits = life.job.arrival <= now and key not in where and (life.finished or 0) > now
            if waits:
                assert not has_room(life.job, free, devices, domains), (now, key, free)
                told["waits"] += 1
                if life.job.devices <= sum(free.values()):
                    told["waits beside free devices"] += 1
    return told


def test_small_replays_stand_before_a_judge_that_tries_all_domains() -> None:
    random, told = Random(11), Counter[str]()
    for _ in range(14):
        nodes, devices = random.choice([(4, 4), (6, 2), (8, 4)])
        domains = random.choice([RACKS, Domains((("rack", 2),))])
        found = []
        for each in random_jobs(random, 24, nodes * devices):
            if random.random() < 0.3:
                each = replace(each, devices=devices + 1)
            draw = random.random()
            if draw < 0.4 and each.devices <= 2 * devices:
                each = requiring(each)
            elif draw < 0.7:
                each = preferring(each)
            found.append(each)
        done = played(found, never(), nodes, devices, domains)
        told += judged(done, nodes, devices, domains)
    assert min(told.values()) > 10, told
    wanted = {"required", "together True", "together False", "waits", "waits beside free devices"}
    assert wanted <= told.keys()


DOMAINS = STUDY.replace("devices: 4}", "devices: 4, domains: {rack: 1}}").replace(
    "policies:", "topology: {required: rack, share: 0.5, devices: 2}\npolicies:"
)


def test_a_study_says_how_many_starts_were_in_one_domain(tmp_path: Path) -> None:
    text = DOMAINS + "  nodes: {planes: [scheduling]}\n  both: {planes: [quota, scheduling]}\n"
    decisions, outcomes = same_twice(tmp_path, study_in(tmp_path, text))
    assert '"nodes":["node-' in decisions
    assert "starts of jobs that request a domain, with all pods in one" in outcomes[0].report
    for row in outcomes[0].rows:
        assert int(row["jobs_requesting_a_domain"]) > 3
        assert float(row["starts_in_one_domain"]) == 1
        assert float(row["wait_p95_requesting_a_domain_s"]) > 0


def test_what_asks_for_domains_in_vain_is_named(tmp_path: Path) -> None:
    study_in(tmp_path)
    trace = tmp_path / "trace.csv"
    lines = trace.read_text().splitlines()
    lines[0] += ",required,preferred"
    asked = ["rack,", ",rack", "rack,rack", "row,"]
    lines[1:] = [f"{line},{asked[n] if n < 3 else ','}" for n, line in enumerate(lines[1:])]
    lines[1] = "0,5,100,net,rack,"  # wider than a rack
    trace.write_text("\n".join(lines) + "\n")
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace("devices: 4}", "devices: 4, domains: {rack: 1}}"))
    done = CliRunner().invoke(simulate, [str(path), "--workers", "1", "-o", str(tmp_path / "r")])
    assert done.exit_code == 0, done.output
    assert "left out: 1 job wider than the cluster" in done.output
    assert "trace.csv:4: required 'rack' beside preferred 'rack'" in done.output
    path.write_text(STUDY)
    done = CliRunner().invoke(simulate, [str(path), "--workers", "1", "-o", str(tmp_path / "r")])
    assert done.exit_code == 1
    assert "job L2 requests a rack; accepted: none, since cluster.domains is not" in done.output


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ("{rack: 1}", "{rack: 0}", ":1: cluster.domains.rack: 0; accepted: an integer"),
        ("{rack: 1}", "{rack: 2, row: 3}", ":1: cluster.domains.row: 3; accepted: a multiple of"),
        ("{rack: 1}", "{rack: 2, row: 2}", "accepted: a multiple of the 2 nodes of a"),
        ("required: rack", "required: row", ":5: topology.required: 'row'; accepted: rack"),
        ("required: rack, ", "", ":5: topology: {'share': 0.5, 'devices': 2}; accepted: one of"),
        ("share: 0.5", "share: 2", ":5: topology.share: 2; accepted: a number from 0 to 1"),
        (", domains: {rack: 1}", "", ":5: topology.required: accepted: a level of cluster.domains"),
    ],
)
def test_a_study_that_misspells_domains_is_refused(
    tmp_path: Path, written: str, instead: str, said: str
) -> None:
    assert written in DOMAINS
    with pytest.raises(UsageError) as refused:
        read_study(study_in(tmp_path, DOMAINS.replace(written, instead, 1)))
    assert said in str(refused.value)
