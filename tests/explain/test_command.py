"""`reprieve explain` and `get` as people type them, against a cluster that checks rights.

The administrator, and a tenant who may read what is in his own namespace and nothing else.
"""

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
from kubeworld.units.instants import Nanos
from reprieve.api.crds import all_crds
from reprieve.cli.explain import explain
from reprieve.cli.get import Answer, get, printed
from reprieve.cli.kubectl_plugin import completions
from reprieve.kube.client import Client, connect
from reprieve.kube.credentials import load_connection
from reprieve.kube.resource import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, Resource
from reprieve.units.errors import UsageError
from reprieve.web.tables import Column, Kind, Table

pytestmark = pytest.mark.real_time
GROUP = "rbac.authorization.k8s.io"
ROLES = Resource(GROUP, "v1", "roles", "Role")
BINDINGS = Resource(GROUP, "v1", "rolebindings", "RoleBinding")
Object = dict[str, Any]


def pod(name: str, namespace: str, node: str = "", **spec: Any) -> Object:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulerName": "reprieve-scheduler",
            "containers": [container],
            **({"nodeName": node} if node else {}),
            **spec,
        },
    }


@dataclass(frozen=True, slots=True)
class Site:
    administrator: Path
    tenant: Path

    def ask(self, *arguments: str, tenant: bool = False) -> Result:
        kubeconfig = self.tenant if tenant else self.administrator
        return CliRunner().invoke(explain, [*arguments, "--kubeconfig", str(kubeconfig)])

    def list(self, *arguments: str, tenant: bool = False) -> Result:
        kubeconfig = self.tenant if tenant else self.administrator
        return CliRunner().invoke(get, [*arguments, "--kubeconfig", str(kubeconfig)])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One node, full of another tenant's work; `mine` waits."""
    with running_in_thread(Settings(nodes=1, gpus=8, scheduler=False, rbac=True)) as found:
        tenant = tmp_path_factory.mktemp("kube") / "tenant"
        found.cluster.write_kubeconfig(tenant, "alice", "mine")
        asyncio.run(_filled(found.kubeconfig))
        yield Site(found.kubeconfig, tenant)


async def _filled(kubeconfig: Path) -> None:
    clock = SystemClock()
    client = connect(await load_connection(str(kubeconfig), None, clock), clock)
    try:
        for name in ("mine", "rivals-of-mine"):
            await client.create(NAMESPACES, {"metadata": {"name": name}}, dict)
        for definition in all_crds():
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition, dict)
        rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
        role = {"metadata": {"name": "reader", "namespace": "mine"}, "rules": rules}
        await client.create(ROLES, role, dict)
        subject = [{"apiGroup": GROUP, "kind": "User", "name": "alice"}]
        named = {"apiGroup": GROUP, "kind": "Role", "name": "reader"}
        binding = {"metadata": role["metadata"], "roleRef": named, "subjects": subject}
        await client.create(BINDINGS, binding, dict)
        await client.create(PODS, pod("secret-project", "rivals-of-mine", "node-0"), dict)
        await client.create(PODS, pod("waits", "mine"), dict)
        await _until_running(client)
    finally:
        await client.close()


async def _until_running(client: Client) -> None:
    for _ in range(600):
        found = await client.get(PODS, "rivals-of-mine", "secret-project", dict)
        if found["status"].get("phase") == "Running":
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the pod does not run")


def test_who_may_read_everything_is_told_what_the_planes_decide(site: Site) -> None:
    told = site.ask("pod/waits", "-n", "mine", "-o", "json")
    assert told.exception is None, told
    document = json.loads(told.output)
    assert document["state"] == "Waits"
    assert (document["waiting"]["plane"], document["waiting"]["reason"]) == ("scheduling", "Full")
    assert "limits" not in document
    assert document["certainty"][0].startswith("Decided anew on what the cluster held at ")


def test_a_tenant_is_told_what_he_may_not_list_and_nothing_of_others(site: Site) -> None:
    for form in ("text", "json"):
        told = site.ask("pod/waits", "-o", form, tenant=True)
        assert told.exception is None, told
        for word in ("rivals", "secret", "node-0"):
            assert word not in told.output
    document = json.loads(told.output)
    assert document["state"] == "Waits"
    # Without nodes none would accept the pod: what the pod itself says is told instead.
    seen = "Stated from what you may read; you may not list other namespaces and "
    (limit,) = document["limits"]
    assert limit.startswith(seen)
    assert len(limit) <= 100
    assert any(each.startswith("You may not list nodes, ") for each in document["certainty"])
    assert document["waiting"]["reason"] != "NoNodeMatches"
    assert any("without nodes" in each for each in document["certainty"])
    first = site.ask("pod/waits", tenant=True).output.splitlines()[0]
    assert first.startswith(seen)


def test_a_tenant_may_not_ask_about_others(site: Site) -> None:
    refused = site.ask("pod/secret-project", "-n", "rivals-of-mine", tenant=True)
    assert isinstance(refused.exception, UsageError)
    assert "you may not get pods there; the rule to add: " in str(refused.exception)
    assert "\n" not in str(refused.exception)


def test_the_namespace_is_that_of_the_context(site: Site) -> None:
    told = site.ask("pod/waits", "-o", "yaml", tenant=True)
    assert "namespace: mine\n" in told.output


def test_what_runs_is_told_with_its_node(site: Site) -> None:
    told = site.ask("pod/secret-project", "-n", "rivals-of-mine")
    assert told.output.startswith("Pod rivals-of-mine/secret-project runs since ")
    assert told.output.splitlines()[0].endswith(": on node node-0.")


def test_a_kind_and_a_name_may_be_two_words(site: Site) -> None:
    told = site.ask("pod", "secret-project", "-n", "rivals-of-mine")
    assert told.output.startswith("Pod rivals-of-mine/secret-project runs since ")
    refused = site.ask("pod", "waits", "secret-project", "-n", "mine")
    assert isinstance(refused.exception, UsageError)
    assert str(refused.exception) == (
        "'pod waits secret-project'; accepted: KIND/NAME..., or KIND NAME"
    )


def test_several_are_answered_from_one_decision_each_as_it_is_alone(site: Site) -> None:
    alone = json.loads(site.ask("pod/mine/waits", "-o", "json").output)
    told = site.ask("pod/mine/waits", "pod/rivals-of-mine/secret-project", "-o", "jsonl")
    assert told.exception is None, told
    waits, runs = (json.loads(each) for each in told.output.splitlines())

    assert (waits["complete"], runs["complete"]) == (True, True)
    assert waits["answer"]["verdict"] == alone["verdict"]
    assert waits["answer"]["nextSteps"] == alone["nextSteps"]
    assert waits["answer"]["waiting"]["why"].casefold() in alone["verdict"].casefold()
    assert runs["answer"]["state"] == "Runs"


def test_one_of_several_without_an_answer_leaves_the_others_theirs(site: Site) -> None:
    told = site.ask("pod/absent", "pod/waits", "-n", "mine", "-o", "jsonl")
    absent, waits = (json.loads(each) for each in told.output.splitlines())

    assert absent == {
        "subject": "pod/absent",
        "error": "no Pod 'absent' in namespace 'mine'; accepted: waits",
    }
    assert waits["answer"]["state"] == "Waits"
    assert str(told.exception) == "1 of 2 objects are not answered"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "yaml"), "-o: 'yaml'; accepted of several objects: text, jsonl"),
        (("--from", "x"), "--from is for one object; 2 are named"),
        (("-n", "b"), "-n b: pod/a/x names another namespace; accepted: one of the two"),
    ],
)
def test_what_is_not_for_several_is_refused(
    site: Site, arguments: tuple[str, ...], said: str
) -> None:
    assert str(site.ask("pod/a/x", "pod/y", *arguments).exception) == said


def test_an_unknown_name_is_answered_with_the_nearest(site: Site) -> None:
    refused = site.ask("pod/wait", "-n", "mine")
    assert isinstance(refused.exception, UsageError)
    assert str(refused.exception) == "no Pod 'wait' in namespace 'mine'; nearest: waits"


def test_who_holds_is_listed_as_kubectl_lists(site: Site) -> None:
    told = site.list("holders", "-A")
    assert told.exception is None, told
    head, row = told.output.splitlines()
    assert head.split() == ["UNIT", "QUEUE", "GPUS", "IDLE", "SINCE", "STATE"]
    assert row.split()[:4] == ["pod/rivals-of-mine/secret-project", "-", "8", "0"]
    assert row.endswith("Running")


def test_who_waits_is_listed_with_reason_and_remedy(site: Site) -> None:
    told = site.list("pending", "-n", "mine", "-o", "json")
    assert told.exception is None, told
    [item] = json.loads(told.output)["items"]
    assert (item["unit"], item["amount"], item["shape"]) == ("pod/mine/waits", 8, "1 x 8")
    # Its former name is read for one release.
    assert site.list("waiters", "-n", "mine", "-o", "json").output == told.output


def test_where_nobody_waits_for_a_resource_others_for_which_some_do_are_named(site: Site) -> None:
    told = site.list("pending", "-A", "--resource", "cpu")
    assert told.stdout == "No pending work of cpu found; --resource shows 1 of nvidia.com/gpu.\n"
    told = site.list("pending", "-n", "mine", "--resource", "cpu")
    assert told.stdout == (
        "No pending work of cpu found in namespace mine; -A looks in all; --resource shows 1 of "
        "nvidia.com/gpu.\n"
    )


@pytest.mark.parametrize(
    ("resource", "header"), [("cpu", "CPU"), ("amd.com/gpu", "GPUS"), ("a.example/nic", "NIC")]
)
def test_amounts_stand_under_the_name_of_what_is_counted(resource: str, header: str) -> None:
    columns = tuple(
        Column(name, Kind.NUMBER if name == "amount" else Kind.TEXT)
        for name in ("unit", "queue", "position", "amount", "since", "reason")
    )
    table = Table(columns, {"a": ("a", "", "", 2, "", "")})
    first = printed(Answer(table, (), Nanos(0), resource=resource), "pending", "text")
    assert header in first.splitlines()[0].split()


def test_a_tenant_lists_his_own_work_and_is_told_what_he_may_not_list(site: Site) -> None:
    holders, waiters = site.list("holders", tenant=True), site.list("pending", tenant=True)
    nothing = "No holders of nvidia.com/gpu found in namespace mine; -A looks in all.\n"
    assert holders.stdout == nothing
    assert "pod/mine/waits" in waiters.stdout
    assert "you may not list: pods outside of mine, nodes, " in waiters.stderr
    for told in (holders, waiters):
        assert "rivals" not in told.output


def test_what_cannot_be_listed_is_refused_with_what_is_accepted(site: Site) -> None:
    for arguments, message in (
        (("holders", "-o", "xml"), "-o: 'xml'; accepted: text, wide, json, yaml"),
        (("holders", "-A", "-n", "mine"), "-n and -A: accepted: one of them"),
        (("holders", "--resource", "tpu"), "resource 'tpu': accepted: nvidia.com/gpu, cpu"),
    ):
        refused = site.list(*arguments)
        assert isinstance(refused.exception, UsageError)
        assert str(refused.exception) == message


def test_there_are_no_loops_where_nobody_was_displaced(site: Site) -> None:
    assert site.list("loops").output == "No loops found.\n"


def test_a_shell_is_offered_kinds_and_the_names_that_the_caller_may_list(site: Site) -> None:
    def offered(*words: str, tenant: bool = False) -> list[str]:
        kubeconfig = str(site.tenant if tenant else site.administrator)
        said = completions(["explain", "--kubeconfig", kubeconfig, *words])
        assert said[-1] == ":4"
        return [line.partition("\t")[0] for line in said[:-1]]

    assert offered("po") == ["pod/", "podgroup/"]
    assert offered("-n", "mine", "pod/") == ["pod/waits"]
    assert offered("-n", "rivals-of-mine", "pod/s") == ["pod/secret-project"]
    assert offered("-n", "mine", "pod", "") == ["waits"]
    assert offered("-n", "mine", "pod", "waits", "") == []
    assert offered("-n", "ri") == ["rivals-of-mine"]
    # What may not be listed, and what is no kind, is offered nothing, and nothing is said.
    assert offered("-n", "rivals-of-mine", "pod/", tenant=True) == []
    assert offered("nonsense/") == []


def test_a_shell_is_offered_the_contexts_of_the_kubeconfig(site: Site) -> None:
    [context] = yaml.safe_load(site.tenant.read_text())["contexts"]
    said = completions(["get", "holders", "--kubeconfig", str(site.tenant), "--context", ""])
    assert said == [context["name"], ":4"]
