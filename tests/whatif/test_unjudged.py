"""Manifests that no API server has judged: a wrong value is told in a line, whatever the kind."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reprieve.jobs.table import job_kinds
from reprieve.kube.resource import Resource
from reprieve.units.errors import UsageError
from reprieve.whatif.run import settled
from reprieve.whatif.submitting.submission import Submitted
from reprieve.whatif.submitting.unjudged import as_stored, kinds_by_name
from tests.whatif.test_kinds import KINDS, ROWS, cluster, deciding, manifest

Object = dict[str, Any]
Path_ = tuple[str | int, ...]
ROW_OF = kinds_by_name(job_kinds())
PLACE = "work.yaml, line 1, column 1"
COUNT = "accepted: a whole number from 0 to 2147483647"
WRONG: list[Any] = [
    *("abc", "", -1, 1.5, 2**31, 10**30, True),
    *([], [1], [None], [{}], [[]], [{"name": 1}], ["x"]),
    *({}, {"a": 1}, {"a": None}, None),
]
#: How many of the values above are refused, and taken, of every kind at least.
LEAST_REFUSED, LEAST_TAKEN, PLAYED = 100, 20, 2
POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")


def document(kind: str) -> Submitted:
    """Return a good manifest of a kind, and its place."""
    if kind in ROWS:
        found = manifest(kind, "wrong", "low")
        return Submitted(found.resource, found.object, PLACE)
    metadata = {"name": "wrong", "namespace": "team"}
    if kind == "PodGroup":
        resource, policy = POD_GROUPS, {"gang": {"minCount": 2}}
        claims = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
        spec: Object = {"schedulingPolicy": policy, "priority": 1, "resourceClaims": claims}
    else:
        resource, spec = (
            REPLICA_SETS,
            copy.deepcopy(manifest("Deployment", "a", "low").object)["spec"],
        )
    obj = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, "spec": spec}
    return Submitted(resource, obj, PLACE)


def paths(part: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Yield the path of each field that a plan may read, and of each item."""
    # Kind, name and namespace have been read before.
    known = [("apiVersion",), ("kind",), ("metadata",)]
    if at and at not in (*known, ("metadata", "name"), ("metadata", "namespace")):
        yield at
    items = (
        part.items()
        if isinstance(part, dict)
        else enumerate(part)
        if isinstance(part, list)
        else ()
    )
    for name, value in items:
        yield from paths(value, (*at, name))


def replaced(document: Submitted, at: Path_, value: Any) -> Submitted:
    """Return the document with another value at a path."""
    obj = copy.deepcopy(document.object)
    inner: Any = obj
    for name in at[:-1]:
        inner = inner[name]
    inner[at[-1]] = value
    return Submitted(document.resource, obj, document.place)


def refused(document: Submitted) -> str:
    """Return what is said of a document that is not accepted."""
    with pytest.raises(UsageError) as error:
        as_stored(document, ROW_OF)
    return str(error.value)


@pytest.mark.parametrize("kind", [*KINDS, "PodGroup", "ReplicaSet"])
def test_of_every_kind_a_wrong_value_anywhere_is_told_in_a_line_or_does_no_harm(
    kind: str, tmp_path: Path
) -> None:
    good = document(kind)
    told, taken = 0, []
    for at in paths(good.object):
        for value in WRONG:
            case = replaced(good, at, value)
            try:
                taken.append(as_stored(case, ROW_OF))
            except UsageError as error:
                told += 1
                said = str(error)
                assert said.startswith(f"{PLACE}: {kind} team/wrong: {at[0]}"), said
                assert "; accepted: a" in said and "\n" not in said and len(said) < 400, said
    assert told >= LEAST_REFUSED and len(taken) >= LEAST_TAKEN, (told, len(taken))
    deciders = deciding("scheduling,quota", tmp_path)
    for case in Random(kind).sample(taken, PLAYED):
        settled(cluster(deciders), deciders, [case])


def counts_of(kind: str) -> list[Path_]:
    """Return where a good manifest has the numbers that its row names."""
    row = ROWS[kind]
    named = [path for each in row.pod_sets for paths_ in each.counts for path in paths_]
    if row.passes_on is not None:
        named += [row.passes_on.total, row.passes_on.groups]
    ends = {tuple(path.split(".")) for path in named if path}
    return [
        at for at in paths(document(kind).object) if any(at[-len(end) :] == end for end in ends)
    ]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if counts_of(kind)])
@pytest.mark.parametrize(
    ("value", "shown"),
    [("abc", "'abc'"), (-1, "-1"), ([1], "a list"), (True, "True"), (0.5, "0.5")],
)
def test_a_number_of_pods_is_a_whole_number(kind: str, value: Any, shown: str) -> None:
    for at in counts_of(kind):
        path = "".join(f"[{n}]" if isinstance(n, int) else f".{n}" for n in at).lstrip(".")
        said = refused(replaced(document(kind), at, value))
        assert said == f"{PLACE}: {kind} team/wrong: {path} is {shown}; {COUNT}"


def test_most_kinds_have_a_number_of_pods() -> None:
    assert sum(bool(counts_of(kind)) for kind in KINDS) >= 12


def test_a_quantity_is_told_with_what_is_accepted() -> None:
    at = ("spec", "template", "spec", "containers", 0, "resources")
    for amount in ("abc", "-1", "1 Gi", "1" * 500):
        case = replaced(document("Job"), at, {"requests": {"cpu": amount}})
        said = refused(case)
        assert said.startswith(
            f"{PLACE}: Job team/wrong: spec.template.spec.containers[0].resources.requests.cpu is '"
        )
        assert said.endswith("; accepted: a quantity, as 500m or 2Gi") and len(said) < 250, said


def test_what_the_api_server_sets_itself_is_dropped_and_what_is_null() -> None:
    good = document("Job").object
    metadata = {**good["metadata"], "uid": 1, "resourceVersion": [], "managedFields": "x"}
    more = {"status": "abc", "metadata": {**metadata, "annotations": None}}
    given = Submitted(document("Job").resource, {**good, **more}, PLACE)
    assert as_stored(given, ROW_OF).object == good


def test_what_the_api_server_has_judged_stays_as_it_is() -> None:
    judged = Submitted(REPLICA_SETS, {"kind": "ReplicaSet", "spec": "x"}, PLACE, judged=True)
    assert as_stored(judged, ROW_OF) is judged


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
@pytest.mark.parametrize("lacking", ["template", "spec", "name"])
def test_what_a_template_lacks_does_no_harm(kind: str, lacking: str, tmp_path: Path) -> None:
    given = copy.deepcopy(document(kind).object)
    if lacking == "template":
        del given["spec"]["template"]
    elif lacking == "spec":
        del given["spec"]["template"]["spec"]
    else:
        del given["spec"]["template"]["spec"]["containers"][0]["name"]
    deciders = deciding("scheduling,quota", tmp_path)
    case = as_stored(Submitted(document(kind).resource, given, PLACE), ROW_OF)
    settled(cluster(deciders), deciders, [case])


def test_what_is_in_the_cluster_already_is_told_in_a_line(tmp_path: Path) -> None:
    deciders = deciding("scheduling,quota", tmp_path)
    with pytest.raises(UsageError) as error:
        settled(cluster(deciders), deciders, [document("Job"), document("Job")])
    told = f"{PLACE}: Job wrong exists already; accepted: what is not submitted yet"
    assert str(error.value) == told
