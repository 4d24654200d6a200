"""`reprieve shadow` as people type it: from a file and from a cluster that checks rights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from kubelocal.running import Settings, running_in_thread
from kubeworld.units.clock import SystemClock
from reprieve.api.crds import all_crds
from reprieve.api.reprieve import PreemptionSpec
from reprieve.cli.shadow import shadow
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    PREEMPTION_PARTS,
    PREEMPTIONS,
    Resource,
)
from reprieve.records.plans.parts import Sizes, split
from reprieve.units.errors import UsageError
from tests.shadow.records import idle_record, listed, quota_record, refused_input, scheduling_record

CANDIDATE = """
gpuPreemption: {irreducible: true}
scheduling: {harmOrder: true}
preemption: Never
governor: {enforce: true}
"""
TOLD = """\
Each decision is made again by itself, on the cluster as it was recorded: what would have come of
other victims afterwards is not known (reprieve simulate replays whole traces).
Only decisions that displaced work have a record, and the decision log has samples of the others:
for which other work the candidate would have preempted is not known.
governor is not applied: the records name the lineages on hold.

candidate.yaml on 4 decisions (idle 1, quota 2, scheduling 1), 2026-03-04T10:15:00Z to \
2026-03-04T10:15:00Z
  decided again           3
    the same              0  0.0 %
    other victims         2
    no victims            1  couldn't assign flavors to pod set main: insufficient unused quota \
for nvidia.com/gpu in flavor gpus, 1 more needed (1)
  input omitted           1  the input was too large to be stored (95000 pods) (1)
  lost GPU hours       14.0 as recorded, 4.2 by the candidate (-70.2 %)
  victims                 4 as recorded, 2 by the candidate

DECIDED                PLANE        PREEMPTOR                   RECORDED                         \
CANDIDATE         LOST GPU H
2026-03-04T10:15:00Z   idle         GpuWorkload ml-team/needy   ml-team/small, 1 on both sides   \
1 on both sides   12.0 -> 4.0
2026-03-04T10:15:00Z   quota        Workload ns/urgent          ns/recent                        \
nobody            1.0 -> 0.0
2026-03-04T10:15:00Z   scheduling   PodGroup default/high       default/young                    \
default/old       1.0 -> 0.2
"""


def changed(record: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**record, "spec": {**record["spec"], **spec}}


def omitted(name: str = "quota-2") -> dict[str, Any]:
    return changed(quota_record(name), input={"version": 1, "omitted": "95000 pods"})


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "candidate.yaml"
    path.write_text(CANDIDATE)
    return path


def asked(text: str, *arguments: str | Path) -> Result:
    given = ["-f", "-", *map(str, arguments)]
    return CliRunner().invoke(shadow, given, input=text)


@pytest.mark.parametrize("form", [json.dumps, yaml.safe_dump])
def test_what_it_cannot_know_stands_before_the_sums_and_what_is_different(
    form: Any, policy: Path
) -> None:
    records = listed(idle_record(), scheduling_record(), quota_record(), omitted())
    told = asked(form(records), "--policy", policy)
    assert (told.exception, told.output) == (None, TOLD)


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_are_told_everything(form: str, read: Any, policy: Path) -> None:
    records = listed(quota_record(), idle_record())
    told = read(asked(json.dumps(records), "--policy", policy, "-o", form).output)
    assert told["total"] | {"decisions": 2, "decided": 2, "reproduced": 2} == told["total"]
    assert [each["name"] for each in told["decisions"]] == ["idle-1", "quota-1"]
    assert told["decisions"][1] == {
        "namespace": "reprieve",
        "name": "quota-1",
        "plane": "quota",
        "decidedAt": "2026-03-04T10:15:00Z",
        "preemptor": "Workload ns/urgent",
        "dryRun": False,
        "verdict": "NoVictims",
        "recorded": [
            {
                "name": "Workload ns/recent",
                "uid": "uid-recent",
                "unit": "",
                "rule": "InClusterQueue",
                "lostDeviceSeconds": 3_600,
            }
        ],
        "candidate": [],
        "reproduced": True,
        "why": told["decisions"][1]["why"],
        "program": told["decisions"][1]["program"],
        "stages": [],
        "demand": "quota-1",
    }


def test_at_most_25_decisions_are_shown_unless_all_are_asked_for(policy: Path) -> None:
    records = json.dumps(listed(*(quota_record(f"quota-{number}") for number in range(30))))
    lines = asked(records, "--policy", policy).output.splitlines()
    assert sum(line.startswith("2026") for line in lines) == 25
    assert lines[-1] == "and 5 more (--all names them)"
    lines = asked(records, "--policy", policy, "--all").output.splitlines()
    assert sum(line.startswith("2026") for line in lines) == 30


def test_samples_of_a_decision_log_tell_for_whom_room_would_have_been_made(tmp_path: Path) -> None:
    line = {
        "time": "2026-03-04T10:15:00.000000Z",
        "plane": "quota",
        "kind": "Workload",
        "namespace": "ns",
        "name": "urgent",
        "uid": "uid-urgent",
        "reason": "HeldByOthers",
        "input": refused_input(),
    }
    log, policy = tmp_path / "log.jsonl", tmp_path / "candidate.yaml"
    log.write_text(f'{json.dumps(line)}\nno line\n{{"time": "x", "dropped": 3}}\n')
    policy.write_text("preemption: {withinClusterQueue: LowerPriority}\n")
    told = CliRunner().invoke(shadow, ["--policy", str(policy), "--decision-log", str(log)])
    assert told.exit_code == 0, told
    output = " ".join(told.output.split())
    assert f"not read: {log}: 1 line not of a decision log" in output
    assert f"not read: {log}: 3 lines missing" in output
    assert told.output.splitlines()[-1].split() == [
        *("2026-03-04T10:15:00.000000Z", "quota", "Workload", "ns/urgent"),
        *("nobody", "ns/recent", "0.0", "->", "1.0"),
    ]
    told = CliRunner().invoke(shadow, ["--decision-log", str(log), "-o", "json"])
    (found,) = json.loads(told.output)["decisions"]
    assert (found["verdict"], found["reproduced"]) == ("Same", True)


def test_without_a_policy_records_are_checked(policy: Path) -> None:
    other = changed(quota_record("other"), planId="0123")
    told = asked(json.dumps(listed(quota_record(), other)))
    assert told.exit_code == 0
    lines = told.output.splitlines()
    assert lines[-1].startswith("  1 of them do not give the recorded plan even as they were")
    assert "    the same              2  100.0 %" in lines
    assert lines[5].startswith("as recorded on 2 decisions (quota 2), ")
    assert "candidate" not in "\n".join(lines[5:])


def test_a_record_that_cannot_be_read_is_counted_and_the_others_are_decided(policy: Path) -> None:
    torn = changed(quota_record("torn"), parts=["torn-1"], victims=[], victimCount=3)
    odd = changed(quota_record("odd"), attempt="first")
    told = asked(json.dumps(listed(torn, odd, quota_record(), {"kind": "Pod"})), "--policy", policy)
    assert told.exit_code == 0
    assert "candidate.yaml on 1 decision (quota 1)" in told.output
    assert "not read: torn: 0 of 1 parts are there, with 0 of 3 victims" in told.output
    assert "not read: odd: Expected `int`, got `str` - at `$.spec.attempt`" in told.output


def test_where_nothing_can_be_decided_the_exit_code_is_1_and_without_records_0() -> None:
    told = asked(json.dumps(listed(omitted())))
    assert (told.exit_code, "  decided again           0" in told.output) == (1, True)
    told = asked(json.dumps(listed()))
    assert (told.exit_code, told.output.splitlines()[-1]) == (0, "No preemptions are recorded.")


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "-f -: not YAML: "), ("kind: Pod", "-f -: no Preemptions; accepted: what kubectl get ")],
)
def test_what_is_no_file_of_records_is_named_in_one_line(text: str, said: str) -> None:
    refused = asked(text).exception
    assert isinstance(refused, UsageError)
    assert str(refused).startswith(said) and "\n" not in str(refused)


def test_nothing_in_a_record_steers_the_terminal(policy: Path) -> None:
    record = quota_record()
    preemptor = {**record["spec"]["preemptor"], "name": "\x1b[2Jforged\nlines"}
    told = asked(json.dumps(changed(record, preemptor=preemptor)), "--policy", policy)
    assert "Workload ns/\N{REPLACEMENT CHARACTER}[2Jforged lines" in told.output
    assert "\x1b" not in told.output


@dataclass(frozen=True, slots=True)
class Site:
    administrator: Path
    tenant: Path

    def ask(self, *arguments: str | Path, tenant: bool = False) -> Result:
        kubeconfig = self.tenant if tenant else self.administrator
        given = [*map(str, arguments), "--kubeconfig", str(kubeconfig)]
        return CliRunner().invoke(shadow, given)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Records in the operator's namespace, one of them in parts; a tenant may read none."""
    with running_in_thread(Settings(nodes=1, gpus=8, scheduler=False, rbac=True)) as found:
        tenant = tmp_path_factory.mktemp("kube") / "tenant"
        found.cluster.write_kubeconfig(tenant, "alice", "mine")
        asyncio.run(_filled(found.kubeconfig))
        yield Site(found.kubeconfig, tenant)


async def _filled(kubeconfig: Path) -> None:
    clock = SystemClock()
    client = connect(await load_connection(str(kubeconfig), None, clock), clock)
    try:
        for name in ("reprieve", "mine"):
            await client.create(NAMESPACES, {"metadata": {"name": name}}, dict)
        for definition in all_crds():
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition, dict)
        for record in (idle_record(), quota_record()):
            await _create(client, PREEMPTIONS, record)
        for resource, built in _in_parts(scheduling_record()):
            await _create(client, resource, built)
    finally:
        await client.close()


async def _create(client: Any, resource: Resource, obj: dict[str, Any]) -> None:
    plain = {key: value for key, value in obj.items() if key != "status"}
    await client.create(resource, plain, dict)


def _in_parts(record: dict[str, Any]) -> list[tuple[Resource, dict[str, Any]]]:
    import msgspec

    spec = msgspec.convert(record["spec"], PreemptionSpec)
    metadata = record["metadata"]
    apart = split(metadata["name"], metadata["namespace"], spec, Sizes(1, 100_000))
    assert apart.parts and apart.inputs
    parts = [
        (PREEMPTION_PARTS, msgspec.to_builtins(each)) for each in (*apart.parts, *apart.inputs)
    ]
    return [*parts, (PREEMPTIONS, {**record, "spec": msgspec.to_builtins(apart.head)})]


@pytest.mark.real_time
def test_the_records_of_a_cluster_are_read_with_their_parts(site: Site, policy: Path) -> None:
    told = site.ask("--policy", policy, "-o", "json")
    assert told.exception is None, told
    found = json.loads(told.output)
    assert [each["verdict"] for each in found["decisions"]] == [
        "OtherVictims",
        "NoVictims",
        "OtherVictims",
    ]
    assert found["total"]["reproduced"] == 3
    assert json.loads(site.ask("-n", "mine", "-o", "json").output)["total"]["decisions"] == 0


@pytest.mark.real_time
def test_who_may_not_read_records_is_told_so(site: Site, policy: Path) -> None:
    refused = site.ask("--policy", policy, tenant=True).exception
    assert isinstance(refused, UsageError)
    assert str(refused).startswith("you may not list preemptions.reprieve.dev in namespace ")
