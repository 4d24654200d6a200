"""Studies with the idle plane: what they say, what they print, and what they refuse."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from kubeworld.units.durations import MINUTE
from reprieve.cli.simulate import simulate
from reprieve.engine.idle.model import Fit, PreemptionPolicy
from reprieve.simulation.demand import Tenants, demand
from reprieve.simulation.idleness import Idleness, busy_between, idle_stretch, work_of
from reprieve.simulation.readers.csv_form import read_csv
from reprieve.simulation.study import read_study
from reprieve.simulation.trace import Job, Trace
from reprieve.units.errors import UsageError
from tests.simulation.building import SECOND, STUDY, job, same_twice, study_in

IDLE = STUDY.replace("load: [1.2]", "load: 1.2") + "idleness: {share: 0.5, after: [0.1, 0.6]}\n"
IDLE = IDLE.replace("none: {preemption", "none: {planes: [scheduling], preemption").replace(
    "classical: {}",
    "pressure: {planes: [idle, scheduling]}\n"
    "  always: {planes: [idle], gpuPreemption: {defaultPolicy: Always, defaultGracePeriod: 1m}}",
)


def test_a_study_with_idle_work_gives_the_same_bytes_twice_and_says_what_was_reclaimed(
    tmp_path: Path,
) -> None:
    decisions, outcomes = same_twice(tmp_path, study_in(tmp_path, IDLE))
    for outcome in outcomes:
        by_policy = {row["policy"]: row for row in outcome.rows}
        assert float(by_policy["none"]["unused_device_hours"]) > 0
        assert float(by_policy["none"]["reclaimed_device_hours"]) == 0
        for name in ("pressure", "always"):
            found = by_policy[name]
            assert float(found["reclaimed_device_hours"]) > 0
            assert int(found["preemptions_for_idle"]) >= int(found["idle_jobs_ended"]) > 0
        # Idle jobs that go for nobody serve nobody in particular.
        assert int(by_policy["pressure"]["served_by_idle"]) > 0
        assert by_policy["always"]["served_by_idle"] == "0"
        for said in (
            "pressure and always also by the idle engine",
            "reclaimed GPU h",
            "GPU hours of a run that were held without being used",
            "GPU hours of a run that idle work gave back early",
            "jobs for which idle ones were preempted",
        ):
            assert said in outcome.report
        assert "by the quota engine" not in outcome.report  # nobody asks for quota here
    told = [json.loads(line) for line in decisions.splitlines()]
    plans = [each for each in told if each.get("plane") == "idle"]
    for plan in plans:
        for victim in plan["victims"]:
            assert victim["idle_since_s"] + 60 <= plan["at_s"] < victim["idle_until_s"]
            assert victim["lost_device_s"] == 0
            assert victim["ends"] is True
        level = "Placement" if plan["preemptor"] else "Exempt"
        proof = plan["proof"]
        assert proof["level"] == level
        assert proof["need"] <= proof["free"] + proof["in_flight"] + proof["freed"]
    assert {plan["preemptor"] is None for plan in plans} == {True, False}


def test_the_report_tells_the_story_of_who_made_way_while_it_was_idle(tmp_path: Path) -> None:
    told = _stories(tmp_path, IDLE.replace("share: 0.5", "share: 0.5, again: 0.5"))
    went = [step for job in told["jobs"] for step in job[7] if step[0] == 5]
    texts = told["texts"]
    assert went
    for _, at, preemptor, rule, _, why, since, back in went:
        assert since < at
        assert back is None or back > at
        assert (texts[rule], preemptor is None) in (
            ("OldestIdle", False),
            ("BesidePriority", False),
            ("Always", True),
        )
        assert texts[why].startswith(("Preempted to free", "Policy is Always"))
    assert {back is None for *_, back in went} == {True, False}


def test_a_study_without_idle_work_shows_no_columns_of_it(tmp_path: Path) -> None:
    study = study_in(tmp_path, STUDY.replace("seeds: [0, 1, 2]", "seeds: [0]"))
    result = CliRunner().invoke(
        simulate, [str(study), "-o", str(tmp_path / "report.html"), "--workers", "1"]
    )
    assert result.exit_code == 0
    assert "GPU h" in result.output
    assert "unused" not in result.output + (tmp_path / "report.html").read_text()


def _stories(folder: Path, text: str) -> dict[str, Any]:
    out = folder / "report.html"
    study = study_in(folder, text)
    assert (
        CliRunner().invoke(simulate, [str(study), "-o", str(out), "--workers", "1"]).exit_code == 0
    )
    packed = re.findall(r'<script type="text/plain" id="run-\d+">([^<]+)</script>', out.read_text())
    found = [json.loads(gzip.decompress(base64.b64decode(each))) for each in packed]
    return {
        "texts": found[1]["texts"] + found[2]["texts"],
        "jobs": found[1]["jobs"]
        + [_moved(each, len(found[1]["texts"])) for each in found[2]["jobs"]],
    }


def _moved(told: list[Any], by: int) -> list[Any]:
    """Let a job's idle steps name texts that stand behind others."""
    steps = [[*s[:3], s[3] + by, s[4], s[5] + by, *s[6:]] if s[0] == 5 else s for s in told[7]]
    return [*told[:7], steps]


def test_a_trace_says_when_its_jobs_are_idle(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "arrival_s,gpus,duration_s,busy_s,idle_s\n"
        "0,1,100,,\n1,1,100,40,\n2,1,100,40,10\n3,1,100,100,\n4,1,100,0,\n5,1,100,40,90\n"
    )
    read = read_csv(trace, "trace")
    assert read.malformed == ()
    assert [idle_stretch(each) for each in read.jobs] == [
        None,
        (40 * SECOND, 100 * SECOND),
        (40 * SECOND, 50 * SECOND),
        None,
        (0, 100 * SECOND),
        (40 * SECOND, 100 * SECOND),
    ]
    assert [work_of(each) // SECOND for each in read.jobs] == [100, 40, 100, 100, 0, 40]
    assert busy_between(read.jobs[2], 30 * SECOND, 60 * SECOND) == 20 * SECOND


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ("-5,", "busy_s '-5'; accepted: seconds from 0 to 100 years"),
        ("nan,", "'nan'"),
        ("200,", "busy_s '200' of '100' seconds; accepted: at most duration_s"),
        ("40,-1", "idle_s '-1'; accepted: seconds from 0 to 100 years"),
        ("40,0", "idle_s '0'; accepted: more than 0 seconds, beside busy_s"),
        (",10", "idle_s '10'; accepted: more than 0 seconds, beside busy_s"),
    ],
)
def test_idleness_that_cannot_be_is_told_with_file_line_and_what_is_accepted(
    tmp_path: Path, cells: str, told: str
) -> None:
    study = study_in(tmp_path, STUDY.replace("seeds: [0, 1, 2]", "seeds: [0]"))
    trace = tmp_path / "trace.csv"
    trace.write_text(
        f"arrival_s,gpus,duration_s,busy_s,idle_s\n0,1,100,,\n7,1,100,{cells}\n9,1,100,,\n"
    )
    (bad,) = read_csv(trace, "trace").malformed
    assert (bad.line, told in bad.why) == (3, True)
    out = str(tmp_path / "report.html")
    result = CliRunner().invoke(simulate, [str(study), "-o", out, "--workers", "1"])
    assert result.exit_code == 0
    assert f"left out: 1 unreadable line, the first is trace.csv:3: {bad.why}" in (result.output)


def test_idleness_is_drawn_by_seed_and_changes_nothing_else() -> None:
    jobs = [job(f"j{number}", number * 60, 2, 1_000) for number in range(400)]
    bare = [Job(each.id, each.arrival, each.devices, each.duration) for each in jobs]
    tenants = Tenants(4, 1.0, {0: 0.5, 10: 0.5})
    never, drawn, more, other = (
        demand(Trace("t", tuple(bare)), tenants, 64, 0.5, seed, idleness).jobs
        for seed, idleness in (
            (0, Idleness()),
            (0, Idleness(0.3, (0.2, 0.9), 0.25)),
            (0, Idleness(0.6, (0.2, 0.9), 0.25)),
            (1, Idleness(0.3, (0.2, 0.9), 0.25)),
        )
    )
    assert [(each.id, each.tenant, each.priority) for each in never] == [
        (each.id, each.tenant, each.priority) for each in drawn
    ]
    idle = [each for each in drawn if each.idle_from is not None]
    assert 0.2 < len(idle) / len(drawn) < 0.4
    assert all(0.2 <= (each.idle_from or 0) / each.duration <= 0.9 for each in idle)
    back = [each for each in idle if work_of(each) == each.duration]
    assert 0.1 < len(back) / len(idle) < 0.45
    # Who is idle with a smaller share is so with a larger one, at the same moment.
    assert set(idle) <= set(more)
    assert set(idle) != {each for each in other if each.idle_from is not None}


def test_what_the_trace_says_of_idleness_is_not_drawn_anew() -> None:
    said = Job("j", 0, 1, 100 * SECOND, idle_from=50 * SECOND)
    assert Idleness(1.0, (0.1, 0.2)).drawn(said, Random(0)) == said


def test_the_section_of_the_configuration_file_sets_up_the_idle_plane(tmp_path: Path) -> None:
    section = "{defaultPolicy: Always, defaultGracePeriod: 3m, defaultThreshold: 12, fit: Sum}"
    said = f"classical: {{planes: [scheduling, idle], gpuPreemption: {section}}}"
    policy = read_study(study_in(tmp_path, STUDY.replace("classical: {}", said))).policies[1]
    assert policy.planes == ("idle", "scheduling")
    settings = policy.idle.settings
    assert (settings.policy, settings.grace_period, settings.threshold) == (
        PreemptionPolicy.ALWAYS,
        3 * MINUTE,
        12.0,
    )
    assert policy.idle.policy.fit is Fit.SUM


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "planes: [quota, idle]",
            "[idle, scheduling] or [idle, quota, scheduling] (idle work holds nodes, which quota",
        ),
        ("planes: [idle, idle]", "accepted: [quota], [scheduling]"),
        ("gpuPreemption: {fit: Sum}", "gpuPreemption: changes nothing where the idle plane"),
        ("planes: [idle], minRuntime: {preempt: 1m}", "changes nothing where there are no quotas"),
        (
            "planes: [idle], gpuPreemption: {defaultPolicy: Sometimes}",
            "gpuPreemption.defaultPolicy: 'Sometimes'; accepted: OnPressure or Always",
        ),
        ("planes: [idle], gpuPreemption: {defaultThreshold: 101}", "accepted: a number of percent"),
        ("planes: [idle], gpuPreemption: {fit: Nodes}", "fit: 'Nodes'; accepted: Sum or Node"),
        ("planes: [idle], gpuPreemption: {grace: 1m}", "accepted: defaultThreshold, default"),
        (
            "planes: [idle], gpuPreemption: {pollingInterval: 1m}",
            "gpuPreemption.pollingInterval: changes nothing in a replay",
        ),
    ],
)
def test_what_an_idle_policy_cannot_say_is_refused(tmp_path: Path, said: str, told: str) -> None:
    study = study_in(tmp_path, STUDY.replace("classical: {}", f"classical: {{{said}}}"))
    with pytest.raises(UsageError) as error:
        read_study(study)
    assert told in str(error.value)
    assert f"{study}:7: policies.classical" in str(error.value)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("{share: 2}", "idleness.share: 2; accepted: a number from 0 to 1"),
        ("{share: 1, after: 0.5}", "idleness.after: 0.5; accepted: two shares"),
        ("{share: 1, after: [0.9, 0.2]}", "accepted: the smaller share first"),
        ("{share: 1, again: -1}", "idleness.again: -1; accepted: a number from 0 to 1"),
        ("{share: 1, utilization: 101}", "idleness.utilization: 101; accepted: a number from 0"),
        ("{part: 1}", "accepted: share, after, again, utilization"),
    ],
)
def test_idleness_that_cannot_be_drawn_is_refused(tmp_path: Path, said: str, told: str) -> None:
    study = study_in(tmp_path, f"{STUDY}idleness: {said}\n")
    with pytest.raises(UsageError) as error:
        read_study(study)
    assert told in str(error.value)
    assert f"{study}:8" in str(error.value)
