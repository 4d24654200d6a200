"""Manifests that cannot be read are told with their place and what is accepted."""

from __future__ import annotations

from itertools import pairwise

import pytest

from reprieve.kube.resource import NODES, PODS, Resource
from reprieve.units.errors import UsageError
from reprieve.whatif.submitting.submission import (
    Document,
    matched,
    read_documents,
    schedulers_named,
)

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\n"
#: Two levels by itself, and 150 with its aliases.
CHAIN = "- &a0 [x]\n" + "".join(f"- &a{n + 1} [*a{n}]\n" for n in range(150))
JOBS = Resource("batch", "v1", "jobs", "Job")


def refused(text: str) -> str:
    """Return what is said of a file that is not accepted."""
    with pytest.raises(UsageError) as error:
        read_documents(text, "work.yaml")
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1,\nb: 2", "work.yaml, line 2, column 5: not YAML: "),
        ("\tkind: Pod", "work.yaml, line 1, column 1: not YAML: "),
        ("", "work.yaml: it has no object; accepted: manifests in YAML or JSON"),
        ("---\n---\n", "work.yaml: it has no object"),
        ("just text", "work.yaml, line 1, column 1: 'just text' is no object"),
        ("- 1", "work.yaml, line 1, column 1: [1] is no object"),
        ("kind: Pod", "work.yaml, line 1, column 1: apiVersion is missing; accepted: a name"),
        ("apiVersion: 1\nkind: Pod", "work.yaml, line 1, column 1: apiVersion is 1"),
        ("apiVersion: v1", "work.yaml, line 1, column 1: kind is missing"),
        (f"{POD}---\n# next\nkind: Job\n", "work.yaml, line 6, column 1: apiVersion is missing"),
        ("apiVersion: v1\nkind: Pod", "work.yaml, line 1, column 1: metadata is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: x", "work.yaml, line 1, column 1: metadata is 'x'"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}", "work.yaml, line 1, column 1: metadata has no"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: [a]}",
            "work.yaml, line 1, column 1: metadata.name is ['a']",
        ),
        ("a: &a [*a, *a]", "work.yaml, line 1, column 4: not YAML: an alias stands for what it is"),
        (f"{POD}spec:\n{CHAIN}", "work.yaml, line 1, column 1: nested too deeply"),
        ("? {a: b}\n: c", "work.yaml, line 1, column 3: not YAML: found unhashable key"),
        ("[" * 5000, "work.yaml"),
        (f"{POD}spec: &a {{b: *a}}", "work.yaml, line 4, column 7: not YAML: an alias stands for"),
        (f"{POD}spec: {'[' * 101}{']' * 101}", "work.yaml, line 1, column 1: nested too deeply"),
        (f"{POD}spec: {{null: a}}", "work.yaml, line 1, column 1: a field's name is no text"),
        (f'{POD}spec: {{a: "\\ud800"}}', "work.yaml, line 1, column 1: a text has half a char"),
        ("!!python/object:os.system x", "work.yaml, line 1, column 1: not YAML: "),
    ],
)
def test_what_is_no_manifest_is_told_with_its_place(text: str, said: str) -> None:
    assert refused(text).startswith(said), refused(text)


def aliases(form: str) -> str:
    """Return nine to the eleventh copies of a text, in few characters."""
    names = "abcdefghijkl"
    lines = [f"- &a {form.format('x')}"]
    for before, name in pairwise(names):
        lines.append(f"- &{name} {form.format(', '.join([f'*{before}'] * 9))}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        aliases("[{}]"),
        aliases("{{a: [{}]}}"),
        aliases("!!pairs [a: [{}]]"),
        f"kind: List\nitems:\n{aliases('{{kind: List, items: [{}]}}')}",
    ],
)
def test_aliases_do_not_make_a_short_file_endless(text: str) -> None:
    assert len(text) < 1000
    assert refused(text) == (
        "work.yaml, line 1, column 1: not YAML: with its aliases it has more than 200000 values"
    )


def test_a_long_list_without_aliases_is_read_whole() -> None:
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {a: " + "x" * 400_000 + "}}"
    text = "kind: List\nitems:\n" + f"- {pod}\n" * 8
    assert len(text) > 3 * 2**20
    assert len(read_documents(text, "work.yaml")) == 8


def test_of_more_objects_than_a_plan_makes_pods_the_first_one_too_many_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reprieve.whatif.submitting.submission.MOST_PODS", 2)
    assert len(read_documents("---\n".join([POD] * 2), "work.yaml")) == 2
    assert refused("---\n".join([POD] * 4)) == (
        "work.yaml, line 9, column 1: one object more; accepted: at most 2 in all"
    )


def test_many_documents_and_lists_are_read_in_order() -> None:
    text = f"{POD}---\napiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: Pod, "
    text += "metadata: {generateName: b-}}\n"
    found = read_documents(text, "work.yaml")
    assert [(each.title, each.place) for each in found] == [
        ("Pod one", "work.yaml, line 1, column 1"),
        ("Pod b-…", "work.yaml, line 5, column 1, item 0"),
    ]


def test_an_instant_stays_the_text_that_it_is() -> None:
    (found,) = read_documents(f"{POD}  \nstatus: {{startTime: 2026-01-01T00:00:00Z}}\n", "x")
    assert found.object["status"]["startTime"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("version", "kind", "said"),
    [
        ("batch/v2", "Job", "does not serve Job of batch/v2; accepted: Job of batch/v1"),
        ("v1", "Pods", "does not serve Pods of v1; accepted: Pod of v1"),
        ("v1", "job", "does not serve job of v1; accepted: Job of batch/v1"),
        ("v1", "Zebra", "does not serve Zebra of v1"),
    ],
)
def test_a_kind_that_is_not_served_is_told_with_those_near(
    version: str, kind: str, said: str
) -> None:
    document = Document({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}}, "here")
    with pytest.raises(UsageError) as error:
        matched([document], [PODS, NODES, JOBS], "team")
    assert str(error.value) == f"here: the API server {said}"


def test_who_names_no_namespace_is_in_that_of_the_context() -> None:
    (document,) = read_documents(POD, "x")
    (found,) = matched([document], [PODS], "team")
    assert found.object["metadata"]["namespace"] == "team"
    assert found.resource == PODS


def test_the_schedulers_that_pods_and_templates_ask_for_are_named_beside_the_default_one() -> None:
    text = """
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {schedulerName: mine, containers: []}
---
apiVersion: batch/v1
kind: Job
metadata: {name: b}
spec: {template: {spec: {schedulerName: other, containers: [{name: main}]}}}
"""
    assert schedulers_named(read_documents(text, "f")) == ("default-scheduler", "mine", "other")
    assert schedulers_named([]) == ("default-scheduler",)
