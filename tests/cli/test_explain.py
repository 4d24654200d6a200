"""`reprieve explain -f FILE`: what is read, and what is said of a file that is something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from reprieve.api.reprieve import Metadata, Preemption
from reprieve.cli.explain import explain
from reprieve.engine.cluster.rows import Change
from reprieve.engine.idle.model import Policy
from reprieve.engine.placement.profile import Policy as SchedulingPolicy
from reprieve.engine.scheduling.outcome import Unit
from reprieve.engine.scheduling.session import Session
from reprieve.records.idle.record import encode
from reprieve.records.idle.replay import decide_again
from reprieve.records.plans.intent_specs import intent_spec
from reprieve.records.scheduling.record import encode_scheduling
from reprieve.units.errors import ReprieveError, UsageError
from tests.engine.builders import gang, node, pod, snapshot_of
from tests.engine.rows import NOW, demand, snapshot, workload


def record(name: str = "idle-1", **spec: Any) -> dict[str, Any]:
    """A record as kubectl prints it."""
    recorded = encode(snapshot(workload("victim"), demand("needy")), Policy(), NOW)
    replay = decide_again(recorded)
    plan = replay.plan(replay.evaluation.plans[0].id)
    assert plan is not None
    written = intent_spec(plan, 1, NOW, decision_input=recorded)
    built = msgspec.to_builtins(Preemption(Metadata(name, "reprieve"), written))
    return {**built, "spec": {**built["spec"], **spec}}


def explained(text: str, *arguments: str) -> tuple[int, str]:
    """Return the exit code and what was printed; raises what `main` would turn into one line."""
    result = CliRunner().invoke(explain, ["-f", "-", *arguments], input=text)
    if isinstance(result.exception, ReprieveError):
        raise result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit), result
    return result.exit_code, result.output


@pytest.mark.parametrize("form", [yaml.safe_dump, lambda each: msgspec.json.encode(each).decode()])
def test_yaml_and_json_of_kubectl_are_read(form: Any) -> None:
    code, told = explained(form(record()))
    assert code == 0
    assert told.startswith("Preemption reprieve/idle-1, plan ")
    assert "Decided again from its stored input (2 workloads): the same plan" in told


def test_an_instant_without_quotes_stays_the_text_that_it_is() -> None:
    text = yaml.safe_dump(record()).replace("'2026-03-04T10:15:00Z'", "2026-03-04T10:15:00Z")
    assert "decidedAt: 2026" in text
    assert explained(text)[0] == 0


def test_one_of_a_list_is_chosen_by_name() -> None:
    text = yaml.safe_dump({"kind": "List", "items": [record("one"), record("two")]})
    assert explained(text, "two")[1].startswith("Preemption reprieve/two, plan ")
    with pytest.raises(UsageError, match=r"^-f -: 2 Preemptions; .*; name one: one, two$"):
        explained(text)
    with pytest.raises(UsageError, match=r"^-f -: 0 Preemptions named 'three'; accepted: one, "):
        explained(text, "three")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not YAML: "),
        ("\x00", "not YAML: "),
        ("", "0 Preemptions; accepted: one"),
        ("[]", "0 Preemptions; accepted: one"),
        ("kind: Pod", "0 Preemptions; accepted: one"),
        ("kind: Preemption", "not a Preemption: Object missing required field `metadata`"),
        (yaml.safe_dump(record(attempt="first")), "not a Preemption: Expected `int`, got `str`"),
    ],
)
def test_a_file_that_is_no_record_is_named(text: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        explained(text)
    assert str(refused.value).startswith(f"-f -: {why}")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(explain, ["-f", str(tmp_path / "missing.yaml")])
    assert isinstance(result.exception, UsageError)
    assert "missing.yaml: cannot be read" in str(result.exception)


@pytest.mark.parametrize(
    ("changed", "said", "code"),
    [
        ({"input": {"version": 1, "omitted": "9000 workloads"}}, "too large to be stored (9000", 1),
        ({"input": {"version": 1}}, "spec.input.encoding is None", 1),
        ({"input": None}, "the record has no input", 1),
        ({"input": None, "revision": 0}, "Nothing was decided: it was found in Preempting", 0),
        ({"planId": "0123"}, "NOT the recorded plan, but ", 1),
        ({"victims": []}, "NOT the recorded plan, other: victims", 1),
        ({"decidedAt": "2026-03-04T10:15:01Z"}, "the same plan", 0),  # written a second later
        ({"decidedAt": "2026-03-04T10:17:00Z"}, "NOT the recorded plan, other: decidedAt", 1),
        ({"proof": {"level": "Exempt"}}, "NOT the recorded plan, other: proof", 1),
    ],
)
def test_what_was_changed_or_left_out_is_said_before_the_story(
    changed: dict[str, Any], said: str, code: int
) -> None:
    text = yaml.safe_dump(record(**changed))
    ended, told = explained(text)
    assert (ended, said in told.splitlines()[1]) == (code, True)
    assert "Status: Planned" in told
    if "input" in changed:
        with pytest.raises(ReprieveError, match=r"^ml-team/victim: no answer\. "):
            explained(text, "--workload", "ml-team/victim")


def test_a_workload_that_was_not_looked_at_is_not_made_up() -> None:
    with pytest.raises(ReprieveError, match=r"^ml-team/other is not among the workloads"):
        explained(yaml.safe_dump(record()), "--workload", "ml-team/other")


@pytest.mark.parametrize("name", ["victim", "/victim", "ml-team/", "a/b/c", ""])
def test_a_workload_is_asked_for_with_its_namespace(name: str) -> None:
    with pytest.raises(UsageError, match=r"^--workload: .*; accepted: NAMESPACE/NAME$"):
        explained(yaml.safe_dump(record()), "--workload", name)


def test_nothing_in_a_record_steers_the_terminal() -> None:
    status = {"phase": "Abandoned", "reason": "\x1b[2Jforged\nlines"}
    _, told = explained(yaml.safe_dump({**record(), "status": status}))
    assert (
        "Status: Abandoned: \N{REPLACEMENT CHARACTER}[2Jforged\N{REPLACEMENT CHARACTER}lines"
        in told
    )


def scheduling_record(**spec: Any) -> dict[str, Any]:
    """A record of a gang of two that took the room of a lower pod."""
    rows: list[Change] = [
        node("n", cpu=2000),
        *(pod(f"low-{n}", cpu=1000, node="n") for n in range(2)),
    ]
    gang_of_one = gang(1, "high", priority=10, cpu=1000)
    snapshot_then = snapshot_of(*rows, *gang_of_one)
    unit = Unit((gang_of_one[1].uid,), "default/high")
    attempt = Session(snapshot_then, SchedulingPolicy()).attempt(unit)
    assert attempt is not None and attempt.plan is not None
    recorded = encode_scheduling(snapshot_then, SchedulingPolicy(), unit)
    written = intent_spec(attempt.plan, 1, NOW, decision_input=recorded)
    built = msgspec.to_builtins(Preemption(Metadata("scheduling-1", "reprieve"), written))
    return {**built, "spec": {**built["spec"], **spec}}


def test_a_plan_of_the_scheduling_plane_is_decided_again_and_told() -> None:
    code, told = explained(yaml.safe_dump(scheduling_record()))
    assert code == 0
    lines = told.splitlines()
    assert lines[0].startswith("Preemption reprieve/scheduling-1, plan ")
    assert lines[1] == (
        "Decided again from its stored input (1 node, 2 placed pods): the same plan"
    )
    assert "Preemptor: PodGroup default/high, priority 10, 1 waiting pod" in lines
    assert (
        "  default/low-1 (on n, priority 0) is preempted: NodeResourcesFit refuses its reprieve"
    ) in lines
    assert "  default/low-0 (on n, priority 0) stays: the preemptor fits with it in place" in lines
    assert lines[-1].startswith("  decided ")


@pytest.mark.parametrize("name", ["low-0", "low-1", "high-0", "high"])
def test_one_pod_or_group_of_the_scheduling_plane_is_answered_for(name: str) -> None:
    code, told = explained(yaml.safe_dump(scheduling_record()), "--workload", f"default/{name}")
    assert (code, told.count("\n")) == (0, 1)
    assert told.startswith(f"default/{name.removesuffix('-0') if name == 'high' else name}")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"planId": "0123"}, "NOT the recorded plan, but "),
        ({"revision": 7}, "NOT the recorded plan, other: revision"),
        ({"victims": []}, "NOT the recorded plan, other: victims"),
        ({"placement": []}, "NOT the recorded plan, other: placement"),
        ({"input": None}, "the record has no input"),
        ({"input": {"version": 1, "omitted": "95000 pods"}}, "too large to be stored (95000"),
    ],
)
def test_a_changed_record_of_the_scheduling_plane_is_told_with_exit_code_1(
    changed: dict[str, Any], said: str
) -> None:
    ended, told = explained(yaml.safe_dump(scheduling_record(**changed)))
    assert (ended, said in told.splitlines()[1]) == (1, True)
    assert "Preemptor: PodGroup default/high" in told


def test_a_pod_that_was_not_there_is_not_made_up() -> None:
    with pytest.raises(ReprieveError, match=r"^default/other is no pod that was waiting"):
        explained(yaml.safe_dump(scheduling_record()), "--workload", "default/other")
