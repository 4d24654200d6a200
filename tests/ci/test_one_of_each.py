"""What the whole house has once: who posts events, writes statuses, and what names an object."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "reprieve"


def _found(pattern: str) -> Iterator[str]:
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        yield from (path.relative_to(SOURCES).as_posix() for _ in re.finditer(pattern, text))


def test_one_module_posts_events() -> None:
    resource = r'Resource\(\s*"events\.k8s\.io"'
    # The overlay of a question keeps the plural: what is told there reaches no server.
    assert list(_found(resource)) == ["kube/recording/events.py", "whatif/copy/overlay.py"]
    writes = r"\b(create|patch|update|replace)\(\s*_?EVENTS\b"
    assert list(_found(writes)) == ["kube/recording/events.py", "kube/recording/events.py"]


def test_the_process_has_one_recorder_for_all_planes() -> None:
    # The second is that of a question, which never runs; the third that of a scenario's scheduler.
    assert list(_found(r"\bEventRecorder\(")) == [
        "operator/process.py",
        "scenarios/scheduler.py",
        "whatif/stage.py",
    ]


def test_events_have_one_text_and_one_reference() -> None:
    assert list(_found(r"\nclass EventText\b")) == ["wording/events.py"]
    assert list(_found(r"\nclass Reference:")) == ["units/references.py"]


#: Who writes a status otherwise than `execution.writes.statuses` does, and why.
_STATUSES = {
    "execution/accounts/disruptions.py": "one field of a record of our own",
    "execution/records/intents.py": "a record of our own, which is written whole",
    "execution/writes/jobs.py": "where the field is that the API wants empty is data of the kind",
    "execution/writes/pods.py": "server-side apply under the reference's name",
    "execution/writes/reserve.py": "device claims, without a merge key; annotations of pods",
    "execution/writes/statuses.py": "the one way",
    "kube/client.py": "the call itself",
    "scenarios/actions.py": "plays an operator who writes by hand",
}


def test_one_module_writes_statuses_and_the_planes_say_what_they_are() -> None:
    assert set(_found(r'subresource="status"|\.update_status\(')) == set(_STATUSES)
    # The writer that gathers wishes, and where one object is judged by itself.
    assert set(_found(r"\bwrite_status\(")) == {
        "execution/evictions/responder.py",
        "execution/pod_victims.py",
        "execution/writes/reserve.py",
        "execution/writes/statuses.py",
        "planes/common/disruptions/harm_statuses.py",
        "planes/common/status_writer.py",
        "planes/idle/reconcile.py",
        "planes/idle/tracking.py",
        "planes/idle/evaluating/marks.py",
        "planes/quota/workload_status/writing.py",
    }
    assert set(_found(r"\bStatusWriter(\[[^\]]*\])? = StatusWriter\(")) == {
        "planes/quota/queue_status/statuses.py",
        "planes/scheduling/gangs/statuses.py",
        "planes/scheduling/statuses.py",
    }


def test_what_is_written_and_not_seen_yet_lies_in_one_kind_of_overlay() -> None:
    """The engine has its own, of pods: with deadlines, in slots of the snapshot."""
    assert set(_found(r"\bUnseen\b[^\n]* = Unseen\(")) == {
        "planes/quota/state.py",
        "planes/scheduling/statuses.py",
    }


#: Who counts attempts by hand, and why that is no call that is tried again.
_ATTEMPTS = {
    "kube/retry.py": "the one place",
    "planes/common/solve.py": "stops a thread, once each turn",
    "scenarios/play.py": "people, who have no client of the operator's",
}


def test_one_module_says_how_often_a_call_is_tried() -> None:
    loops = r"for \w+ in range\((\w*ATTEMPTS|\w*TRIES|attempts)\b"
    assert set(_found(loops)) == set(_ATTEMPTS)


def test_what_follows_from_a_decision_is_done_by_carrying_out_effects_alone() -> None:
    begun = r"\b_(preemptions\.begin|bindings\.assume)\("
    assert set(_found(begun)) == {"planes/scheduling/cycle/carry_out.py"}
    lists = {path.relative_to(SOURCES).parent.as_posix() for path in SOURCES.rglob("effects.py")}
    assert lists == {
        "planes/idle/evaluating",
        "planes/quota/deciding",
        "planes/scheduling/cycle",
        "planes/scheduling/gangs",
    }
    assert all((SOURCES / folder / "carry_out.py").exists() for folder in lists)


def test_one_function_says_what_a_merge_patch_holds() -> None:
    assert set(_found(r"to_builtins\((before|old)\)")) == {"kube/bodies.py"}


#: The fields that name an object, and no more than which a reference has.
_NAMING = {
    "api_version",
    "group",
    "kind",
    "namespace",
    "name",
    "uid",
    "version",
    "resource_version",
}

#: What names an object and nothing else: the one value, and forms that differ for their reasons.
_REFERENCES = {
    "units/references.py Reference": "the value, pure, for the engine and all others",
    "api/reprieve.py ObjectRef": "it on the wire: camel case, and what lacks a field is refused",
    "api/reprieve.py SubjectClass": "many at once: the name is made of that of the root",
    "engine/cluster/rows.py Gone": "a row that goes: its kind is the engine's own",
    "engine/idle/discovery.py Lookup": "a question: without a uid any object of the name will do",
    "answers/document.py Subject": "what a person typed: a name without API version and uid",
    "web/mirror/reported.py _Involved": "of an Event as anybody writes it: whatever may be missing",
}

#: An entry of `ownerReferences` has no namespace and says whether it controls.
_OWNER_REFERENCES = {
    "api/core.py OwnerReference": "on the wire",
    "engine/idle/discovery.py Owner": "the value, pure: what a walk to the root follows",
    "api/kaiwo.py WorkloadReference": "no owner, but `spec.workloadRef` of a GpuWorkload",
    "whatif/submitting/fields.py _Owner": "a manifest, refused where a field is no text",
}


def _classes_of(fields: Callable[[set[str]], bool]) -> set[str]:
    return {name for name, named in _classes() if fields(set(named))}


@cache
def _classes() -> tuple[tuple[str, frozenset[str]], ...]:
    """Return all classes of the house with the fields that they declare."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        at = path.relative_to(SOURCES).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                named = frozenset(
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                )
                found.append((f"{at} {node.name}", named))
    return tuple(found)


def test_one_value_names_an_object() -> None:
    naming = _classes_of(lambda named: {"kind", "namespace", "name"} <= named <= _NAMING)
    assert naming == set(_REFERENCES)


def test_one_value_names_an_owner() -> None:
    owner = {"api_version", "kind", "name", "uid"}
    assert _classes_of(lambda named: owner <= named <= owner | {"controller"}) == set(
        _OWNER_REFERENCES
    )
