"""The input of a decision is stored so that deciding it again gives the same plans."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.api.reprieve import Metadata, Preemption
from reprieve.engine.idle.evaluation import evaluate
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.idle.model import (
    Fit,
    IdleSnapshot,
    NodeRow,
    Phase,
    Policy,
    Reservation,
)
from reprieve.engine.idle.outcome import Evaluation, Reason
from reprieve.planes.idle.records import IntentRecord
from reprieve.records.idle.record import DATA_LIMIT, JSON_LIMIT, encode, relevant
from reprieve.records.idle.replay import InputOmitted, SpoiltInput, decide_again, decode
from reprieve.records.plans.intent_specs import intent_spec
from reprieve.units.ids import GpuWorkloadKey, Uid
from tests.engine import cases
from tests.engine.rows import NOW, ago, demand, pod, policy_of, rows_of, snapshot, workload

REFUSALS = (Reason.SHORT, Reason.NO_PLACEMENT)


def keys(rows: IdleSnapshot) -> list[str]:
    return [row.ref.name for row in rows.workloads]


def through_the_api(recorded: dict[str, Any]) -> dict[str, Any]:
    """What comes back from the API server."""
    back: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(recorded))
    return back


def as_bytes(evaluation: Evaluation) -> bytes:
    return msgspec.json.encode(evaluation, order="deterministic")


def turned(rows: IdleSnapshot) -> IdleSnapshot:
    """The same rows as other events would have brought them."""
    return replace(
        rows,
        workloads=tuple(
            replace(w, pods=w.pods[::-1], gpus=dict([*w.gpus.items()][::-1]))
            for w in rows.workloads[::-1]
        ),
        nodes=rows.nodes[::-1],
        claims=dict([*rows.claims.items()][::-1]),
        reservations=rows.reservations[::-1],
    )


@pytest.mark.parametrize("irreducible", [False, True])
@pytest.mark.parametrize("fit", list(Fit))
def test_deciding_the_stored_input_again_gives_the_same_bytes(fit: Fit, irreducible: bool) -> None:
    counted: Counter[str] = Counter()

    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(cases.clusters(), st.booleans())
    def run(case: dict[str, Any], literal: bool) -> None:
        now = Nanos(cases.NOW * SECOND)
        held = [
            Reservation(
                GpuWorkloadKey("team-a/other"), Uid(f"held-{name}"), name, {"amd.com/gpu": 1}
            )
            for name in case["nodes"]
        ]
        rows = replace(rows_of(case), reservations=tuple(held))
        switches = LiteralSwitches.all() if literal else LiteralSwitches()
        policy = policy_of(case, fit=fit, irreducible=irreducible, literal=switches)
        decided = evaluate(rows, policy, now)
        counted["cases"] += 1
        counted["preemption"] += any(plan.preemptor for plan in decided.plans)
        counted["refusal"] += any(each.reason in REFUSALS for each in decided.declined)

        recorded = encode(rows, policy, now)
        replay = decide_again(through_the_api(recorded))

        assert as_bytes(replay.evaluation) == as_bytes(decided)
        assert encode(turned(rows), policy, now) == recorded
        assert replay.decided_on.policy == policy
        assert replay.decided_on.snapshot == relevant(rows, policy, now)

    run()
    # What is drawn depends a little on the modules that the process has loaded.
    assert counted["preemption"] >= 0.2 * counted["cases"], counted
    assert counted["refusal"] >= 0.05 * counted["cases"], counted


def test_rows_that_cannot_matter_are_left_out() -> None:
    gone: dict[str, Any] = {"pods": [], "preempted_for": "demand"}
    rows = snapshot(
        workload("active", Phase.ACTIVE),
        workload("claimed", Phase.ACTIVE),
        demand("demand"),
        workload("idle"),
        workload("long-gone", Phase.PREEMPTED, preempted_at=ago(600), **gone),
        workload("other", Phase.PENDING_OTHER),
        workload("preempting", Phase.PREEMPTING, preempted_for="demand"),
        workload("settling", Phase.PREEMPTED, preempted_at=ago(5), **gone),
        workload("slow", Phase.PREEMPTED, preempted_at=ago(600), preempted_for="demand"),
        claims={Uid("claimed-uid"): None, Uid("unknown-uid"): None},
        nodes=(NodeRow("node-b", {}), NodeRow("node-a", {})),
        reservations=(Reservation(GpuWorkloadKey("a/b"), Uid("p"), "node-a", {}),),
    )

    kept = relevant(rows, Policy(), NOW)
    on_nodes = relevant(rows, Policy(fit=Fit.NODE), NOW)

    assert keys(kept) == ["claimed", "demand", "idle", "preempting", "settling", "slow"]
    assert kept.claims == {Uid("claimed-uid"): None}
    assert (kept.nodes, kept.reservations) == ((), ())
    assert [node.name for node in on_nodes.nodes] == ["node-a", "node-b"]
    assert on_nodes.reservations == rows.reservations


def test_an_input_beyond_the_bound_is_left_out_and_says_so() -> None:
    def uid(text: object) -> Uid:
        return Uid(hashlib.sha256(str(text).encode()).hexdigest())

    def crowd(count: int) -> IdleSnapshot:
        rows = (workload(f"w{index}", pods=[]) for index in range(count))
        return snapshot(*(replace(w, root=replace(w.root, uid=uid(w.key))) for w in rows))

    small, large = encode(crowd(2_000), Policy(), NOW), encode(crowd(15_000), Policy(), NOW)

    assert DATA_LIMIT / 8 < len(small["data"]) <= DATA_LIMIT
    assert large == {"version": 1, "omitted": "15,000 workloads"}
    with pytest.raises(InputOmitted, match=r"too large to be stored \(15,000 workloads\)"):
        decode(large)


def test_the_copies_of_one_run_have_a_bound_together() -> None:
    rows = snapshot(workload("idle"), demand())
    assert "data" in encode(rows, Policy(), NOW, records=100)
    assert encode(rows, Policy(), NOW, records=1_000_000) == {
        "version": 1,
        "omitted": "2 workloads",
    }


def test_a_count_beyond_64_bits_is_kept_as_it_is() -> None:
    rows = snapshot(workload("greedy", gpus=10**30))
    assert decode(encode(rows, Policy(), NOW)).snapshot == rows


def packed(text: bytes) -> dict[str, Any]:
    return {
        "version": 1,
        "encoding": "zlib+base64",
        "data": base64.b64encode(zlib.compress(text)).decode(),
        "sha256": hashlib.sha256(text).hexdigest(),
    }


GOOD = encode(snapshot(workload("idle"), demand(pods=[pod("p", "Pending")])), Policy(), NOW)
BOMB = packed(b"0" * (JSON_LIMIT + 1))


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        ({}, "version is None; accepted: 1"),
        (GOOD | {"version": 2}, "version is 2; accepted: 1"),
        (GOOD | {"version": True}, "version is True; accepted: 1"),
        (GOOD | {"encoding": "gzip"}, "encoding is 'gzip'; accepted: 'zlib[+]base64'"),
        (GOOD | {"data": None}, "data is missing"),
        (GOOD | {"data": "%" + GOOD["data"]}, "data cannot be unpacked"),
        (GOOD | {"data": "é" + GOOD["data"]}, "data cannot be unpacked"),
        (GOOD | {"data": base64.b64encode(b"plain").decode()}, "data cannot be unpacked"),
        (GOOD | {"data": GOOD["data"][:40]}, "data is cut off"),
        (GOOD | {"data": ""}, "data is cut off"),
        (BOMB, "data is cut off, or more than was recorded"),
        (
            GOOD | {"data": packed(b"{}")["data"]},
            "data is not what was recorded: its sha256 is another one",
        ),
        (GOOD | {"sha256": ""}, "data is not what was recorded: its sha256 is another one"),
        (packed(b"{}"), "data has another form than version 1: .*`snapshot`"),
        (packed(b"nonsense"), "data has another form than version 1"),
        (packed(b'{"program": "\xff"}'), "data has another form than version 1"),
    ],
)
def test_a_spoilt_input_is_named(spoilt: dict[str, Any], why: str) -> None:
    with pytest.raises(SpoiltInput, match=rf"^spec\.input\.{why}"):
        decode(spoilt)


def test_the_operator_keeps_no_inputs_in_memory() -> None:
    plan = evaluate(snapshot(workload("idle"), demand()), Policy(), NOW).plans[0]
    written = Preemption(Metadata("idle-1"), intent_spec(plan, 1, NOW, decision_input=GOOD))
    kept = IntentRecord.of(written).intent
    assert kept.spec == intent_spec(plan, 1, NOW)
