"""Only `execution` changes objects that are not Reprieve's own: every write is found.

Elsewhere a write names one of the kinds below as its resource, or stands in `REVIEWED` with what it
writes to. A write is a call of one of the client's writing methods.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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
    "operator/pod_tokens.py": "reviews of tokens, which are not stored",
    "planes/quota/webhooks/registration.py": "the chart's own webhook configurations and CRDs",
}
#: Attributes and names that are writers of `execution`, or no client at all.
WRITERS: Final = frozenset({"_executor", "_pods", "writer", "jobs", "_workloads", "self"})


def test_only_execution_writes_to_objects_of_others() -> None:
    found = {(where, line, text) for where, line, text in _writes()}
    assert found == set()


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
