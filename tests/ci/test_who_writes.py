"""Only `execution` changes objects that are not Reprieve's own: every write is found.

Planes hold an `OwnWriter`, which writes Reprieve's own kinds alone: a write of anything else, in
whatever spelling, is an error of types. The client that writes all is held by the modules of
`HOLDERS`, each of which hands it to `execution`. In these, and outside of the planes, a write names
one of the kinds below as its resource, or stands in `REVIEWED` with what it writes to.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import mypy.api
import pytest

import reprieve
from reprieve.kube.client import Client

ROOT: Final = Path(reprieve.__file__).parent
#: `scenarios` play people, tenants and administrators; `kube` is the client itself.
APART: Final = ("execution/", "kube/", "scenarios/")
WRITES: Final = frozenset(
    {
        *("create", "replace", "update_status", "patch", "patch_status", "patch_scale"),
        *("apply", "delete", "evict", "bind", "modify"),
    }
)
#: Kinds that a plane of Reprieve is the controller of, and what the operator keeps for itself.
OWN: Final = frozenset(
    {
        "GPU_WORKLOADS",  # the idle plane's record of a root
        "KAIWO_CONFIGS",  # made empty when there is none
        "HARM_BUDGETS",  # their status
        "LEASES",
        "PREEMPTIONS",
        "SECRETS",  # the webhooks' certificate
        "WORKLOADS",  # the quota plane's record of a job
    }
)
REVIEWED: Final = {
    "operator/metrics_access.py": "reviews of tokens and of access, which are not stored",
    "operator/notice_tls.py": "the chart's own ConfigMap, with the authorities that pods trust",
    "operator/pod_tokens.py": "reviews of tokens, which are not stored",
    "planes/quota/webhooks/registration.py": "the chart's own webhook configurations and CRDs",
}
#: Which modules of the planes hold the client that writes all kinds, and for which of `execution`.
HOLDERS: Final = {
    "planes/common/assembly.py": "it gives each plane its client",
    "planes/common/context.py": "the context of every plane",
    "planes/common/disruptions/harm_statuses.py": "the writer of statuses",
    "planes/common/status_writer.py": "`writes.statuses`",
    "planes/idle/assembly.py": "the context",
    "planes/idle/evaluating/marks.py": "`writes.statuses`",
    "planes/idle/evaluating/victims.py": "`writes.evict`",
    "planes/idle/plane.py": "the book of plans",
    "planes/idle/provable.py": "`writes.rights`",
    "planes/idle/reconcile.py": "`writes.statuses`",
    "planes/idle/tracking.py": "`writes.statuses`",
    "planes/quota/deciding/preemptions.py": "the book of plans",
    "planes/quota/job_reconciler/jobs.py": "`writes.jobs`",
    "planes/quota/pod_reconcilers/pod_steps.py": "`writes.pods`",
    "planes/quota/pod_reconcilers/ungating.py": "`writes.pods`",
    "planes/quota/queue_status/in_use.py": "`writes.finalizers`",
    "planes/quota/queue_status/statuses.py": "the writer of statuses",
    "planes/quota/webhooks/process.py": "the registration of webhooks",
    "planes/quota/webhooks/registration.py": "see `REVIEWED`",
    "planes/quota/webhooks/server.py": "the registration of webhooks",
    "planes/quota/workload_status/retention.py": "`writes.jobs`",
    "planes/quota/workload_status/writing.py": "`writes.statuses`",
    "planes/scheduling/cycle/bindings.py": "`writes.bind` and `writes.reserve`",
    "planes/scheduling/cycle/preemptions.py": "the book of plans",
    "planes/scheduling/cycle/victims.py": "`pod_victims`",
    "planes/scheduling/gangs/plane.py": "the writer of statuses",
    "planes/scheduling/gangs/statuses.py": "the writer of statuses",
    "planes/scheduling/plane.py": "turns on shared nodes",
    "planes/scheduling/statuses.py": "the writer of statuses",
}
#: Attributes and names that are writers of `execution`, or no client at all.
WRITERS: Final = frozenset({"_executor", "_pods", "writer", "jobs", "_workloads", "self"})


def test_only_execution_writes_to_objects_of_others() -> None:
    found = {(where, line, text) for where, line, text in _writes()}
    assert found == set()


def test_planes_hold_no_client_that_writes_all_kinds_but_where_execution_gets_it() -> None:
    holding = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "planes").rglob("*.py")
        if re.search(r"kube\.client import|\bfull_client\b", path.read_text(encoding="utf-8"))
    }
    assert holding == HOLDERS.keys()


@pytest.mark.thorough
def test_writing_somebody_elses_object_is_an_error_of_types_in_any_spelling(
    tmp_path: Path,
) -> None:
    spellings = (
        "await context.client.delete(PODS, 'ns', 'pod')",
        "await asyncio.gather(context.client.delete(PODS, 'ns', 'pod'))",
        "asyncio.create_task(context.client.patch(PODS, 'ns', 'pod', {}, dict))",
        "(lambda: context.client.replace(PODS, {}, dict))()",
        "end = context.client.delete; await end(PODS, 'ns', 'pod')",
        "writer = context.client.at(Priority.EVICT); await writer.create(PODS, {}, dict)",
        "await context.client.evict('ns', 'pod')",
        "await context.client.bind('ns', 'pod', 'node')",
    )
    head = (
        "import asyncio",
        "from reprieve.kube.resource import PODS",
        "from reprieve.kube.writes import Priority",
        "from reprieve.planes.quota.context import QuotaContext",
    )
    bodies = (
        f"async def spelling_{at}(context: QuotaContext) -> None:\n    {each}"
        for at, each in enumerate(spellings)
    )
    text = "\n".join((*head, *bodies)) + "\n"
    file = tmp_path / "spellings.py"
    file.write_text(text)
    report, trouble, _ = mypy.api.run(["--strict", str(file)])
    assert trouble == ""
    lines = {int(line) for line in re.findall(r"spellings\.py:(\d+): error: ", report)}
    assert lines == {len(head) + 2 * (at + 1) for at in range(len(spellings))}


def test_what_is_reviewed_still_writes() -> None:
    for where in REVIEWED:
        tree = ast.parse((ROOT / where).read_text(encoding="utf-8"))
        assert any(
            isinstance(node, ast.Call) and _method(node) in WRITES for node in ast.walk(tree)
        )


def test_the_list_of_writing_methods_is_the_clients() -> None:
    methods = {name for name, _ in inspect.getmembers(Client, inspect.iscoroutinefunction)}
    reading = {"close", "get", "get_scale", "list"}
    assert {name for name in methods if not name.startswith("_")} - reading == WRITES


def _writes() -> Iterator[tuple[str, int, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if where.startswith(APART) or where in REVIEWED:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
                call = node.value
                if _method(call) in WRITES and not _is_own(call):
                    yield where, call.lineno, ast.unparse(call.func)


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _is_own(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Name) and first.id in OWN:
        return True
    receiver = call.func.value
    if isinstance(receiver, ast.Attribute):
        return receiver.attr in WRITERS
    # A bare `writer` may be the client itself.
    return isinstance(receiver, ast.Name) and receiver.id in WRITERS - {"writer"}
