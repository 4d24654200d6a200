"""With all options off plans are, byte for byte, what they were before there were options.

The digests were made by the engine as it was then. Each is over plans, or the nodes of pods that
are bound without one, of so many random clusters; ids of plans are among them, and so the text of
the policy. What has been added to plans since is left out. Who mends a rule that holds without
options, so that plans change, takes what `digest` says then.
"""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from tests.engine.api_objects import Json, cluster_of, policy_of
from tests.engine.scheduling import engine_cycle
from tests.oracle.scheduling.clusters import random_cluster
from tests.oracle.scheduling.optional import OPTIONS, random_optional

CHUNK = 125
#: By whether there is a second reprieve pass, of the clusters in order.
DIGESTS = {
    False: (
        "436e28018e318a4a",
        "720ae99ddc6ff2c5",
        "9cb099845b5f9498",
        "b550acdc666c2c9b",
        "d56921946fab3ac5",
        "79e2d2c8784f1a17",
        "b8c416ac5216d7e9",
        "a910d751b1ae4698",
        "db1013b638c60675",
        "0a506b3fa0681dfa",
        "414ca771a5ecb3ce",
        "265dc1072089f526",
        "2a55f1939a822ac6",
        "71ca28e0afa97a8d",
        "e96beed434917a17",
        "7f7cfac0cac2160f",
    ),
    True: (
        "6f98d4dc7377d812",
        "899669a2fd44f033",
        "03d97c38c627435b",
        "0f1cc30a8b9c1d44",
        "ee7e1c92098a4e22",
        "5ed9a9a8dd707176",
        "b8fc0eb2420c5771",
        "0df08013794a3bc5",
        "22b30c191e3c32c8",
        "e758b44ca7149c55",
        "7047d65f4593c0bc",
        "3702704f1953fa23",
        "f0a7e9758e0c0ac1",
        "e47e1d4b8d2bfe89",
        "6b108e35efa1ecb8",
        "dc397702f7aa77de",
    ),
}
FIELDS = ("id", "plane", "preemptor", "proof", "victims", "placement", "reprieved", "guards")
OF_PROOF = ("level", "need", "in_flight", "freed", "compatible")
ENDS = ("subject", "root")
OF_VICTIMS = ("subject", "root", "amounts", "rule", "reason")


def decided(case: Json, *, second: bool) -> bytes:
    """What is decided about a case, as bytes; with victims for a plan."""
    policy = policy_of(case, second_reprieve_pass=second)
    snapshot = cluster_of(case).snapshot()
    attempt = engine_cycle.attempt_of(case, snapshot, policy)
    if attempt is None:
        return b"held"
    if attempt.plan is None:
        return msgspec.json.encode([(member.uid, member.bind) for member in attempt.members])
    engine_cycle.assert_proven(snapshot, policy, attempt, case.get("now", 0), case["seed"])
    plan = msgspec.to_builtins(attempt.plan)
    told = {name: plan[name] for name in FIELDS}
    told["proof"] = {name: told["proof"][name] for name in OF_PROOF}
    told["victims"] = [{name: each[name] for name in OF_VICTIMS} for each in plan["victims"]]
    # What names an object may carry the version that was seen, which no decision does.
    for named in (told["preemptor"], *(each[end] for each in told["victims"] for end in ENDS)):
        assert named is None or named.pop("resource_version") == ""
    for guard in told["guards"]:
        assert guard["subject"].pop("resource_version") == ""
    return msgspec.json.encode(told)


def digest(chunk: int, *, second: bool) -> str:
    """The digest of a chunk of clusters; a quarter of them and more have a plan."""
    cases = map(random_cluster, range(chunk * CHUNK, (chunk + 1) * CHUNK))
    every = [decided(case, second=second) for case in cases]
    assert sum(each.startswith(b'{"id"') for each in every) >= CHUNK // 4
    return hashlib.sha256(b"\n".join(every)).hexdigest()[:16]


@pytest.mark.parametrize("second", [False, True])
def test_plans_without_options_are_those_of_before(second: bool) -> None:
    assert digest(int(second), second=second) == DIGESTS[second][int(second)]


@pytest.mark.slow
@pytest.mark.parametrize("second", [False, True])
def test_plans_without_options_are_those_of_before_on_many_clusters(second: bool) -> None:
    found = tuple(digest(chunk, second=second) for chunk in range(len(DIGESTS[second])))
    assert found == DIGESTS[second]


def test_what_options_ask_about_changes_nothing_while_they_are_off() -> None:
    """Annotations, priority classes and idle work are there, and nobody looks at them."""
    planned = 0
    for seed in range(40):
        case = {k: v for k, v in random_optional(seed, ()).items() if k not in OPTIONS}
        told = decided(case, second=True)
        bare = {k: v for k, v in case.items() if k not in ("priorityClasses", "gpuWorkloads")}
        for kind in ("pods", "podGroups", "compositePodGroups", "namespaces"):
            bare[kind] = [_unsaid(each) for each in case.get(kind, ())]
        assert decided(bare, second=True) == told, seed
        planned += told.startswith(b'{"id"')
    assert planned >= 10


def _unsaid(each: Json) -> Json:
    metadata = {k: v for k, v in each["metadata"].items() if k != "annotations"}
    return {**each, "metadata": metadata}
