"""A real kubectl against the embedded server: the commands of a walkthrough, validation on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelocal.cluster import EmbeddedCluster
from kubelocal.tests.server.builders import definition, job, pod, task

pytestmark = pytest.mark.real_time  # kubectl is a process of its own

Run = Callable[..., Coroutine[Any, Any, tuple[int, str, str]]]


@pytest.fixture
async def run(cluster: EmbeddedCluster, kubectl: Path, tmp_path: Path) -> Run:
    cluster.write_kubeconfig(tmp_path / "config")

    async def command(*arguments: str, text: str = "") -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            kubectl,
            *arguments,
            env={"KUBECONFIG": str(tmp_path / "config"), "HOME": str(tmp_path)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(text.encode()), 60)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    return command


async def test_a_job_from_create_to_delete(run: Run) -> None:
    manifest = yaml.safe_dump(job("train"))
    steps = [
        ("apply", "-f", "-"),
        ("apply", "-f", "-"),
        ("apply", "--server-side", "--force-conflicts", "-f", "-"),
        ("annotate", "job", "train", "example.com/note=hello"),
        ("label", "job", "train", "team=red"),
        ("patch", "job", "train", "--type=merge", "-p", '{"spec":{"suspend":true}}'),
        ("get", "job", "train", "-o", "jsonpath={.spec.suspend} {.metadata.labels.team}"),
        ("delete", "job", "train", "--timeout=60s"),
    ]
    answers = [await run(*step, text=manifest) for step in steps]

    assert [code for code, _, _ in answers] == [0] * len(steps), answers
    assert [out.strip() for _, out, _ in answers[:7]] == [
        "job.batch/train created",
        "job.batch/train unchanged",
        "job.batch/train serverside-applied",
        "job.batch/train annotated",
        "job.batch/train labeled",
        "job.batch/train patched",
        "true red",
    ]
    assert answers[-1][1].startswith('job.batch "train" deleted')


async def test_tables_describe_and_explain(run: Run) -> None:
    await run("create", "-f", "-", text=yaml.safe_dump(pod("p", priority=0)))
    _, table, _ = await run("get", "pods", "-A", "-o", "wide")
    described, text, _ = await run("describe", "pod", "p")
    explained, schema, _ = await run("explain", "job.spec.template")
    _, resources, _ = await run("api-resources", "--api-group=batch", "-o", "name")

    head, row = table.splitlines()
    assert head.split()[:6] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:5] == ["default", "p", "0/1", "Pending", "0"]
    assert (described, explained) == (0, 0)
    assert "example.com/worker:1" in text
    assert "KIND:       Job" in schema
    assert resources.split() == ["cronjobs.batch", "jobs.batch"]


async def test_wrong_fields_are_named_before_anything_is_stored(run: Run) -> None:
    wrong = job("train")
    wrong["spec"]["nosuch"] = 1
    code, _, error = await run("create", "-f", "-", text=yaml.safe_dump(wrong))
    missing, _, _ = await run("get", "job", "train")

    assert (code, missing) == (1, 1)
    assert 'strict decoding error: unknown field "spec.nosuch"' in error


async def test_typed_commands_send_protobuf(run: Run) -> None:
    answers = [
        await run(*command)
        for command in (
            ("create", "namespace", "team"),
            ("create", "configmap", "c", "--from-literal=a=1", "-n", "team"),
            ("create", "job", "j", "--image=example.com/worker:1", "--", "run"),
            ("create", "serviceaccount", "s"),
            ("delete", "namespace", "team", "--timeout=60s"),
        )
    ]

    assert [code for code, _, _ in answers] == [0] * 5, answers


async def test_wait_sees_a_condition_and_an_end(run: Run) -> None:
    await run("create", "-f", "-", text=yaml.safe_dump(pod("p")))
    waiting = asyncio.create_task(run("wait", "pod/p", "--for=condition=Ready", "--timeout=60s"))
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await run("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    ready = await waiting
    waiting = asyncio.create_task(run("wait", "pod/p", "--for=delete", "--timeout=60s"))
    await run("delete", "pod", "p", "--wait=false")
    gone = await waiting

    assert (ready[0], ready[1].strip()) == (0, "pod/p condition met")
    assert gone[0] == 0, gone


async def test_a_definition_is_established_and_its_objects_are_shown(run: Run) -> None:
    await run("apply", "-f", "-", text=yaml.safe_dump(definition()))
    established, _, _ = await run(
        "wait", "crd/tasks.example.com", "--for=condition=Established", "--timeout=60s"
    )
    created, out, error = await run(
        "apply", "-f", "-", text=yaml.safe_dump(task("t", mode="Batch"))
    )
    scaled, _, _ = await run("scale", "task/t", "--replicas=4")
    _, replicas, _ = await run("get", "task", "t", "-o", "jsonpath={.spec.replicas}")

    assert (established, created, scaled) == (0, 0, 0), error
    assert (out.strip(), replicas) == ("task.example.com/t created", "4")


async def test_deprecated_kinds_and_versions_are_warned_of(run: Run) -> None:
    crd = definition()
    crd["spec"]["versions"][0] |= {"deprecated": True, "deprecationWarning": "tasks are past"}
    created, _, _ = await run("create", "-f", "-", text=yaml.safe_dump(crd))
    endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"}}
    answers = [
        await run(*command, text=yaml.safe_dump(obj))
        for command, obj in (
            (("get", "endpoints"), {}),
            (("create", "-f", "-"), endpoints),
            (("delete", "endpoints", "e"), {}),
            (("get", "componentstatuses"), {}),
            (("create", "-f", "-"), task("t")),
            (("get", "task", "t", "-o", "name"), {}),
            (("get", "task", "u"), {}),
        )
    ]

    old = "Warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    assert created == 0
    assert [error.splitlines() for _, _, error in answers] == [
        [old, "No resources found in default namespace."],
        [old],
        [old],
        ["Warning: v1 ComponentStatus is deprecated in v1.19+", "No resources found"],
        ["Warning: tasks are past"],
        ["Warning: tasks are past"],
        [
            "Warning: tasks are past",
            'Error from server (NotFound): tasks.example.com "u" not found',
        ],
    ]


async def test_a_service_with_a_wrong_address_is_refused(run: Run) -> None:
    wrong = await run("create", "service", "clusterip", "s", "--tcp=80", "--clusterip=10.96.0.300")
    await run("create", "service", "nodeport", "a", "--tcp=80", "--node-port=30080")
    taken = await run("create", "service", "nodeport", "b", "--tcp=80", "--node-port=30080")

    assert (wrong[0], wrong[2].strip()) == (
        1,
        (
            'error: failed to create ClusterIP service: Service "s" is invalid: '
            'spec.clusterIPs[0]: Invalid value: "10.96.0.300": must be a valid IP address, (e.g. '
            "10.9.8.7 or 2001:db8::ffff)"
        ),
    )
    assert (taken[0], taken[2].strip()) == (
        1,
        (
            'error: failed to create NodePort service: Service "b" is invalid: '
            "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
        ),
    )


async def test_a_user_of_the_kubeconfig_meets_the_deny_switches(
    run: Run, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    cluster.deny("alice", "list", "", "pods")
    cluster.write_kubeconfig(tmp_path / "config", "alice")
    code, _, error = await run("get", "pods")
    _, answer, _ = await run("auth", "can-i", "list", "pods")

    assert code == 1
    assert error.startswith(
        'Error from server (Forbidden): pods is forbidden: User "alice" cannot list'
    )
    assert answer.strip() == "no"
