"""`reprieve plan` as people type it, against a cluster that answers over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from kubelocal.running import Running, Settings, running_in_thread
from kubeworld.units.clock import SystemClock
from reprieve.cli.plan import plan
from reprieve.cli.snapshot import snapshot
from reprieve.kube.client import connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import PODS, Resource
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.whatif.questions.document import PlanDocument, schema

pytestmark = pytest.mark.real_time
CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
Object = dict[str, Any]


def pod(name: str, gpus: int = 4, priority: str = "", node: str = "", **spec: Any) -> Object:
    """Return a pod that asks for GPUs and, where a node is named, runs there."""
    container = {
        "name": "c",
        "image": "registry.example/app:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "reprieve-scheduler",
            "containers": [container],
            **({"priorityClassName": priority} if priority else {}),
            **({"nodeName": node} if node else {}),
            **spec,
        },
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Running]:
    """Two nodes of eight GPUs, each half full of low priority."""
    with running_in_thread(Settings(nodes=2, gpus=8, scheduler=False)) as found:
        asyncio.run(_filled(found.kubeconfig))
        yield found


async def _filled(kubeconfig: Path) -> None:
    clock = SystemClock()
    client = connect(await load_connection(str(kubeconfig), None, clock), clock)
    for name, value in (("low", 100), ("high", 1000)):
        body = {"metadata": {"name": name}, "value": value}
        await client.create(CLASSES, body, dict)
    for number in range(2):
        await client.create(PODS, pod(f"low-{number}", 4, "low", f"node-{number}"), dict)
    await client.close()


def planned(cluster: Running, *objects: Object, flags: tuple[str, ...] = ()) -> Result:
    """Return what the command answers about these objects."""
    arguments = ["-f", "-", "--kubeconfig", str(cluster.kubeconfig), *flags]
    result = CliRunner().invoke(plan, arguments, input=yaml.safe_dump_all(objects))
    if isinstance(result.exception, ReprieveError):
        raise result.exception
    return result


def document(result: Result) -> Object:
    found: Object = json.loads(result.output)
    return found


def test_a_pod_that_fits_starts(cluster: Running) -> None:
    result = planned(cluster, pod("small"), flags=("--detailed-exitcode",))
    assert (result.exit_code, result.exception) == (0, None), result.output
    first, what, verdict, where, last = result.output.splitlines()
    assert re.fullmatch(r"snapshot .* UTC \(2 nodes, 2 pods, \d+\.\d s old\)", first)
    assert what == "Pod default/small   1 pod x 4 nvidia.com/gpu, 1 placed"
    assert verdict == "  STARTS, nothing is preempted"
    assert where.startswith("  small on node-")
    assert last == "decided by scheduling; nothing is submitted and nothing is reserved"


def test_a_pod_that_needs_a_whole_node_names_who_makes_way(cluster: Running) -> None:
    result = planned(cluster, pod("large", 8, "high"), flags=("--detailed-exitcode", "-o", "json"))
    assert result.exit_code == 10, result.output
    said = document(result)
    assert said["verdict"] == "StartsWithVictims"
    (victim,) = said["victims"]
    assert victim["kind"] == "Pod" and victim["name"] in ("low-0", "low-1")
    assert victim["devices"] == 4
    assert [each["podsWithoutVictims"] for each in said["submitted"]] == [0]
    node = {"low-0": "node-0", "low-1": "node-1"}[victim["name"]]
    assert said["placement"] == [{"pod": "large", "node": node}]


def test_of_a_job_the_pods_that_start_with_nobody_making_way_are_told(cluster: Running) -> None:
    spec = pod("any", 4, "high")["spec"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sweep", "namespace": "default"},
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "template": {"spec": {**spec, "restartPolicy": "Never"}},
        },
    }
    told = planned(cluster, job).output.splitlines()
    assert "Job default/sweep   3 pods x 4 nvidia.com/gpu = 12, 3 placed" in told
    assert any(line.startswith("  STARTS, others are preempted") for line in told)
    assert "  without preemption: 2 pods now" in told


def test_work_of_endlessly_many_pods_ends_with_one_line_and_exit_code_2(cluster: Running) -> None:
    template = {"spec": {**pod("any")["spec"], "restartPolicy": "Never"}}
    metadata = {"name": "sweep", "namespace": "default"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    command = [sys.executable, "-m", "reprieve", "plan", "-f", "-"]
    ended = subprocess.run(
        [*command, "--kubeconfig", str(cluster.kubeconfig)],
        input=json.dumps({**job, "spec": {"parallelism": 2**31 - 1, "template": template}}),
        text=True,
        capture_output=True,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "Error: standard input, line 1, column 1: Job default/sweep: 2147483647 pods; accepted: at "
        "most 20000 in all of a plan\n"
    )


def test_the_process_ends_with_the_exit_code_of_the_verdict(cluster: Running) -> None:
    command = [sys.executable, "-m", "reprieve", "plan", "-f", "-", "--detailed-exitcode"]
    command += ["--kubeconfig", str(cluster.kubeconfig)]
    codes = [
        subprocess.run(
            [*command, *flags], input=yaml.safe_dump(wanted), text=True, capture_output=True
        ).returncode
        for flags in ([], ["--without-server"])
        for wanted in (pod("small"), pod("large", 8, "high"), pod("huge", 9), {"kind": "Pod"})
    ]
    assert codes == [0, 10, 30, 2] * 2


def test_a_pod_that_may_take_nobody_waits(cluster: Running) -> None:
    result = planned(cluster, pod("large", 8, "low"), flags=("--detailed-exitcode", "-o", "yaml"))
    assert result.exit_code == 20, result.output
    said = yaml.safe_load(result.output)
    assert (said["verdict"], said["reason"]) == ("Waits", "Full")
    (outcome,) = said["submitted"]
    assert outcome["conditionReason"] == "Unschedulable"
    assert "0/2 nodes are available" in outcome["conditionMessage"]


def test_a_pod_that_is_larger_than_any_node_never_fits(cluster: Running) -> None:
    result = planned(cluster, pod("huge", 9, "high"), flags=("--detailed-exitcode",))
    assert result.exit_code == 30, result.output
    assert "  NEVER FITS" in result.output.splitlines()


def test_of_what_never_fits_it_is_said_how_much_would_and_not_to_wait(cluster: Running) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "wide", "namespace": "default"},
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "template": {"spec": pod("one", 8, restartPolicy="Never")["spec"]},
        },
    }
    result = planned(cluster, job, flags=("--detailed-exitcode",))
    assert result.exit_code == 30, result.output
    lines = result.output.splitlines()
    assert "  even on the empty cluster: 2 of 3 pods placed" in lines
    assert "    next, not tried: Submit 2 pods at most, request less, or add nodes." in lines
    [outcome] = document(planned(cluster, job, flags=("-o", "json")))["submitted"]
    assert outcome["podsOnEmptyCluster"] == 2


def test_the_document_is_what_the_published_schema_says(cluster: Running) -> None:
    for wanted in (pod("small"), pod("large", 8, "high"), pod("large", 8, "low")):
        said = planned(cluster, wanted, flags=("-o", "json")).output
        msgspec.json.decode(said, type=PlanDocument)
    published = Path(__file__).parents[2] / "docs" / "plan.schema.json"
    assert json.loads(published.read_text()) == schema()


def timeless(value: Any) -> Any:
    """Return a document without what depends on when it was asked."""
    if isinstance(value, list):
        return [timeless(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: timeless(each)
        for name, each in value.items()
        if name not in ("snapshot", "notLaterThan") and "lost" not in name.lower()
    }


def test_on_a_stored_snapshot_the_answer_is_the_one_that_was_live(
    cluster: Running, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.snapshot"
    arguments = ["-o", str(file), "--kubeconfig", str(cluster.kubeconfig)]
    assert CliRunner().invoke(snapshot, arguments).exit_code == 0
    for wanted in (
        pod("small"),
        pod("large", 8, "high"),
        pod("large", 8, "high", schedulerName="default-scheduler"),
        pod("huge", 9, "high"),
    ):
        flags = ("-o", "json", "--without-server")
        live = document(planned(cluster, wanted, flags=flags))
        stored = document(planned(cluster, wanted, flags=(*flags, "--from", str(file))))
        assert timeless(stored) == timeless(live)


def test_a_misspelt_kind_is_told_with_those_that_come_near(cluster: Running) -> None:
    with pytest.raises(UsageError) as refused:
        planned(cluster, {**pod("small"), "kind": "Pood"})
    assert str(refused.value).startswith(
        "standard input, line 1, column 1: the API server does not serve Pood of v1; accepted: Pod"
    )


def manifest_of(kind: str, spec: Any) -> Object:
    """Return a manifest that is taken as it stands."""
    version = {"Pod": "v1", "Job": "batch/v1", "PodGroup": "scheduling.k8s.io/v1beta1"}
    metadata = {"name": "wrong", "namespace": "default"}
    api_version = version.get(kind, "apps/v1")
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        (
            "Deployment",
            {"replicas": "abc"},
            "spec.replicas is 'abc'; accepted: a whole number from 0 to 2147483647",
        ),
        (
            "Job",
            {"parallelism": -1},
            "spec.parallelism is -1; accepted: a whole number from 0 to 2147483647",
        ),
        ("StatefulSet", {"template": [1]}, "spec.template is a list; accepted: a mapping"),
        (
            "Pod",
            {"containers": {"name": "c"}},
            "spec.containers is a mapping; accepted: a list or nothing",
        ),
        ("Pod", None, "spec is missing; accepted: a mapping"),
        (
            "PodGroup",
            {"schedulingPolicy": {"gang": {"minCount": "abc"}}},
            "spec.schedulingPolicy.gang.minCount is a text; accepted: a whole number",
        ),
    ],
)
def test_a_wrong_value_without_a_server_is_one_line_and_exit_code_2(
    cluster: Running, kind: str, spec: Any, said: str
) -> None:
    command = [sys.executable, "-m", "reprieve", "plan", "-f", "-", "--without-server"]
    ended = subprocess.run(
        [*command, "--kubeconfig", str(cluster.kubeconfig)],
        input=json.dumps(manifest_of(kind, spec)),
        text=True,
        capture_output=True,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    place = f"standard input, line 1, column 1: {kind} default/wrong"
    assert ended.stderr == f"Error: {place}: {said}\n"


def of_template(kind: str, api_version: str, **spec: Any) -> Object:
    """Return work of one pod template."""
    template = {"metadata": {"labels": {"app": "any"}}, "spec": pod("any", 1)["spec"]}
    template["spec"]["restartPolicy"] = "Never" if kind == "Job" else "Always"
    metadata = {"name": "held", "namespace": "default"}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": {"template": template, **spec},
    }


@pytest.mark.parametrize(
    ("held", "verdict", "reason", "message"),
    [
        (
            pod("held", 1, schedulingGates=[{"name": "example.org/budget"}]),
            "Waits",
            "SchedulingGated",
            "it has the scheduling gate example.org/budget",
        ),
        (
            of_template("Job", "batch/v1", suspend=True),
            None,
            "NotDecided",
            "it is suspended (spec.suspend: true), and no queue has accepted it",
        ),
        (
            of_template(
                "Deployment", "apps/v1", replicas=0, selector={"matchLabels": {"app": "any"}}
            ),
            None,
            "NotDecided",
            "it requests no pods (spec.replicas: 0)",
        ),
    ],
    ids=["gated", "suspended", "scaled to zero"],
)
def test_what_somebody_else_holds_back_is_told_so_and_not_that_it_never_fits(
    cluster: Running, held: Object, verdict: str | None, reason: str, message: str
) -> None:
    (said,) = document(planned(cluster, held, flags=("-o", "json")))["submitted"]
    assert (said["verdict"], said["reason"], said["message"]) == (verdict, reason, message)
