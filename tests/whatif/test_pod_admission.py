"""A job whose pods the API server would refuse is no plan: it says so, whatever the kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from reprieve.kube.errors import ApiError, Forbidden, Invalid, TooManyRequests
from reprieve.kube.resource import EVENTS, NAMESPACES, Resource
from reprieve.kube.transport import Request
from reprieve.units.errors import ReprieveError, UsageError
from reprieve.whatif.controllers.pod_templates import PRIORITIES
from reprieve.whatif.questions.answer import Verdict
from reprieve.whatif.questions.planning import kinds_of
from reprieve.whatif.snapshots.snapshot import Snapshot, Unseen
from reprieve.whatif.submitting.pod_admission import check_classes, dry_run_pods
from reprieve.whatif.submitting.submission import Submitted
from reprieve.whatif.submitting.unjudged import Kinds
from tests.scheduling.site import NAMESPACE, Site, node, pod, priority_class, site
from tests.whatif.asking import ask
from tests.whatif.test_kinds import KINDS, cluster, deciding, manifest
from tests.whatif.test_rights import TENANT, reads, role

JOBS = Resource("batch", "v1", "jobs", "Job")
RANGES = Resource("", "v1", "limitranges", "LimitRange")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
FACTS: dict[str, Any] = {"controllers": "scheduling", "names": ["default-scheduler"]}
#: Their pods are described elsewhere, or in fields of their own.
WITHOUT_TEMPLATES: Final = ("SparkApplication", "TrainJob")
Object = dict[str, Any]


def job(name: str, *, queue: str = "", **spec: Any) -> Object:
    template = {**pod(name, 1)["spec"], "restartPolicy": "Never", **spec}
    template.pop("schedulerName", None)
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"template": {"spec": template}},
    }


async def refused(found: Site, wanted: Object, **facts: Any) -> str:
    with pytest.raises(ReprieveError) as refusal:
        await ask(found.embedded.kubeconfig, wanted, **{**FACTS, **facts})
    return str(refusal.value)


async def test_a_template_with_a_class_that_is_not_there_is_refused_as_the_server_refuses_its_pods(
    tmp_path: Path,
) -> None:
    async with site([node("node-0")], tmp_path) as found:
        await found.create(priority_class("low", 100))
        wanted = job("wanted", priorityClassName="missing")
        title = f"Job {NAMESPACE}/wanted"
        judged = await refused(found, wanted)
        assert judged.startswith(f"the test: the API server refuses the pods of {title}: pods ")
        assert judged.endswith("no PriorityClass with name missing was found")
        assert await refused(found, wanted, without_server=True) == (
            f"the test: {title}: there is no PriorityClass 'missing', so that the API server "
            "refuses its pods; accepted: low"
        )
        # As its word goes: it is stored, and has no pod.
        await found.client.create(JOBS, wanted, dict)
        await asyncio.sleep(5)
        assert await found.pods() == {}
        assert await refusals(found, "Job") == {
            " is forbidden" + judged.rpartition(" is forbidden")[2]
        }


async def refusals(found: Site, kind: str) -> set[str]:
    """Return what the controllers of a kind were told of their pods, without the pods' names."""
    page = await found.client.list(EVENTS, dict, namespace=NAMESPACE)
    return {
        "".join(each["message"].partition(" is forbidden")[1:])
        for each in page.items
        if (each["reason"], each["involvedObject"]["kind"]) == ("FailedCreate", kind)
    }


async def test_a_class_of_the_same_submission_and_those_of_every_cluster_are_there(
    tmp_path: Path,
) -> None:
    async with site([node("node-0")], tmp_path) as found:
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 7}
        made["metadata"] = {"name": "made"}
        for objects in (
            [job("wanted", priorityClassName="system-node-critical")],
            [made, job("wanted", priorityClassName="made")],
        ):
            for alone in (True, False):
                facts = {**FACTS, "without_server": alone}
                asked = await ask(found.embedded.kubeconfig, *objects, **facts)
                assert asked.answer.verdict is Verdict.STARTS


async def test_a_quota_that_is_used_up_for_now_is_told_but_not_of_those_who_wait_in_a_queue(
    tmp_path: Path,
) -> None:
    async with site([node("node-0")], tmp_path) as found:
        body = {
            "metadata": {"name": "full", "namespace": NAMESPACE},
            "spec": {"hard": {"cpu": "2"}},
        }
        await found.client.create(QUOTAS, body, dict)
        await found.create(pod("runs", 1, nodeName="node-0"))
        await asyncio.sleep(1)
        large = job("wanted")
        for amounts in large["spec"]["template"]["spec"]["containers"][0]["resources"].values():
            amounts["cpu"] = "2"
        for queue, warned in (("", True), ("any", False)):
            large["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
            asked = await ask(found.embedded.kubeconfig, large, **FACTS)
            told = [each for each in asked.answer.warnings if "gets no pods for now" in each]
            assert bool(told) is warned, asked.answer.warnings
            assert all("exceeded quota: full" in each for each in told)
        for amounts in large["spec"]["template"]["spec"]["containers"][0]["resources"].values():
            amounts["cpu"] = "3"
        assert "exceeded quota: full" in await refused(found, large)


async def test_of_a_quota_with_room_for_some_pods_it_is_told_for_how_many_and_what_was_taken_before(
    tmp_path: Path,
) -> None:
    async with site([node("node-0", 9)], tmp_path) as found:
        hard = {"requests.cpu": "5", "requests.amd.com/gpu": "9"}
        body = {"metadata": {"name": "room", "namespace": NAMESPACE}, "spec": {"hard": hard}}
        await found.client.create(QUOTAS, body, dict)
        await asyncio.sleep(1)
        wanted, after = job("wanted"), job("after")
        for each, count in ((wanted, 3), (after, 4)):
            each["spec"] |= {"parallelism": count, "completions": count}
            for amounts in each["spec"]["template"]["spec"]["containers"][0]["resources"].values():
                amounts["cpu"] = "1"
        asked = await ask(found.embedded.kubeconfig, wanted, after, **FACTS)
        (told,) = [each for each in asked.answer.warnings if "ResourceQuota" in each]
        assert told == (
            f"Job {NAMESPACE}/after gets 2 of its 4 pods for now: ResourceQuota room has "
            "requests.cpu left for no more; with 2 at most it has all of them now"
        )
        template = {**wanted["spec"]["template"], "metadata": {"labels": {"app": "serves"}}}
        template["spec"] = {**template["spec"], "restartPolicy": "Always"}
        selector = {"matchLabels": {"app": "serves"}}
        serves = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "serves", "namespace": NAMESPACE},
            "spec": {"replicas": 6, "selector": selector, "template": template},
        }
        asked = await ask(found.embedded.kubeconfig, serves, **FACTS)
        (told,) = [each for each in asked.answer.warnings if "ResourceQuota" in each]
        assert told.startswith(f"Deployment {NAMESPACE}/serves gets 5 of its 6 pods for now: ")
        # Who waits in a queue is told nothing, and takes nothing from others.
        wanted["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "any"}
        asked = await ask(found.embedded.kubeconfig, wanted, after, **FACTS)
        assert not [each for each in asked.answer.warnings if "ResourceQuota" in each]


@pytest.mark.parametrize(
    ("failure", "ends"),
    [
        (Forbidden('admission webhook "a" denied the request: no'), True),
        (Invalid('ValidatingAdmissionPolicy "a" denied the request: no'), True),
        (Invalid('Pod "a" is invalid: spec.containers: Required value'), False),
        (Forbidden('pods is forbidden: User "a" cannot create resource "pods"'), False),
        (TooManyRequests("later"), False),
    ],
    ids=["webhook", "policy", "completed later", "no right", "busy"],
)
async def test_what_keeps_all_pods_out_ends_the_plan_and_nothing_else(
    failure: ApiError, ends: bool, tmp_path: Path
) -> None:
    sent: list[Object] = []

    class Refusing:
        async def request(self, request: Request, call: Any) -> bytes:
            sent.append(msgspec.json.decode(request.body or b""))
            raise failure

    client: Any = SimpleNamespace(transport=Refusing())
    kinds = kinds_of(deciding("scheduling,quota", tmp_path))
    found = manifest("Job", "wanted", "low")
    found = replace(found, judged=True)
    found.object["metadata"]["uid"] = "its-uid"
    if ends:
        with pytest.raises(ReprieveError, match="refuses the pods of Job team/wanted"):
            await dry_run_pods(client, [found], kinds)
    else:
        assert await dry_run_pods(client, [found], kinds) == ()
    # As its controller would make it.
    (owner,) = sent[0]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", "its-uid", True)
    assert "blockOwnerDeletion" not in owner


async def test_pods_of_an_account_of_the_same_submission_are_not_asked_for(tmp_path: Path) -> None:
    accounts = Resource("", "v1", "serviceaccounts", "ServiceAccount")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine"}}
    found = replace(manifest("Job", "wanted", "low"), judged=True)
    for spec in pod_specs(found.object):
        spec["serviceAccountName"] = "mine"
    kinds = kinds_of(deciding("scheduling,quota", tmp_path))
    nobody: Any = None
    assert await dry_run_pods(nobody, [Submitted(accounts, account), found], kinds) == ()


async def give_range(found: Site, namespace: str, cpu: str) -> None:
    if namespace != NAMESPACE:
        await found.client.create(NAMESPACES, {"metadata": {"name": namespace}}, dict)
    limits = [{"type": "Container", "default": {"cpu": cpu}}]
    # Of several the first by name counts.
    name = "one" if namespace == NAMESPACE else "another"
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"limits": limits}}
    await found.client.create(RANGES, body, dict)


async def test_pods_of_a_job_ask_for_what_their_namespace_gives_them(tmp_path: Path) -> None:
    async with site([node("node-0", cpu=4)], tmp_path) as found:
        for space, amount in ((NAMESPACE, "3"), ("another", "1")):
            await give_range(found, space, amount)
        await asyncio.sleep(1)
        wanted = job("wanted")
        wanted["spec"].update(parallelism=2, completions=2)
        for container in wanted["spec"]["template"]["spec"]["containers"]:
            container.pop("resources", None)
        asked = await ask(found.embedded.kubeconfig, wanted, **FACTS)
        (outcome,) = asked.answer.outcomes
        assert (outcome.verdict, outcome.pods, outcome.placed) == (Verdict.NEVER_FITS, 2, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_templates_of_every_kind_are_looked_at(kind: str, tmp_path: Path) -> None:
    deciders = deciding("scheduling,quota", tmp_path)
    kinds, there = kinds_of(deciders), cluster(deciders)
    found = manifest(kind, "wanted", "low")
    check_classes(there, [found], kinds)
    specs = list(pod_specs(found.object))
    if not specs:
        assert kind in WITHOUT_TEMPLATES
        return
    for spec in specs:
        for name in ("PriorityClass", "RuntimeClass"):
            field = f"{name[0].lower()}{name[1:]}Name"
            spec[field] = "missing"
            with pytest.raises(UsageError) as told:
                check_classes(there, [found], kinds)
            del spec[field]
            assert f"{kind} team/wanted: there is no {name} 'missing'" in str(told.value)


def with_class(name: str, tmp_path: Path) -> tuple[Snapshot, Submitted, Kinds]:
    """Return a cluster, and a Job whose pods are of a class."""
    deciders = deciding("scheduling,quota", tmp_path)
    found = manifest("Job", "wanted", "low")
    for spec in pod_specs(found.object):
        spec["priorityClassName"] = name
    return cluster(deciders), found, kinds_of(deciders)


def test_the_classes_of_every_api_server_need_not_be_listed(tmp_path: Path) -> None:
    there, found, kinds = with_class("system-node-critical", tmp_path)
    check_classes(there, [found], kinds)


def test_who_may_not_list_classes_is_not_told_that_there_are_none(tmp_path: Path) -> None:
    there, found, kinds = with_class("missing", tmp_path)
    with pytest.raises(UsageError):
        check_classes(there, [found], kinds)
    check_classes(replace(there, unseen=(Unseen(PRIORITIES, ()),)), [found], kinds)


async def test_who_may_make_jobs_and_no_pods_is_not_refused_for_that(tmp_path: Path) -> None:
    made = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}
    roles = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *role("reads-and-makes-jobs", [reads("*"), made]),
    ]
    async with site(
        [node("node-0")], tmp_path, rbac=True, operator_user=TENANT, operator_roles=roles
    ) as found:
        asked = await ask(found.embedded.operator_kubeconfig, job("wanted"), **FACTS)
        assert asked.answer.verdict is Verdict.STARTS


def pod_specs(part: Any) -> Iterator[Object]:
    """Yield whatever in a manifest looks like the spec of a pod."""
    if isinstance(part, dict):
        if isinstance(part.get("containers"), list):
            yield part
        for each in part.values():
            yield from pod_specs(each)
    elif isinstance(part, list):
        for each in part:
            yield from pod_specs(each)
