"""The input of a decision, as it stands in a Preemption's `spec.input`.

    {"version": 1, "encoding": "zlib+base64", "data": "...", "sha256": "..."}
    {"version": 1, "omitted": "12000 workloads"}

`data` is the compressed JSON of `DecisionInput` (in the scheduling plane, of `scheduling_record`),
in one canonical order, so that the same input has the same bytes; `sha256` is the hex digest of
that JSON before compression. Kept are the rows that can change a plan or an answer: idle and
waiting workloads, those on their way out or claimed, and, where the fit check looks at nodes, nodes
and reservations. An input that would not fit into the bounds is left out, and states it: a record
must never keep a decision from being carried out. `replay` reads it again. Source: promise
"Explained" of the design.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import replace
from typing import Any, Final

import msgspec

import reprieve
from kubeworld.units.instants import Nanos
from reprieve.engine.disruptions.questions import budget_of
from reprieve.engine.idle.flights import in_flight
from reprieve.engine.idle.model import Fit, IdleSnapshot, Phase, Policy, Workload
from reprieve.units.counts import counted

__all__ = [
    "DATA_LIMIT",
    "ENCODING",
    "JSON_LIMIT",
    "RUN_LIMIT",
    "VERSION",
    "DecisionInput",
    "encode",
    "packed",
    "relevant",
]

VERSION: Final = 1
ENCODING: Final = "zlib+base64"
#: Most characters of `data` in one record: etcd accepts objects of up to 1.5 MiB.
DATA_LIMIT: Final = 512 * 1024
#: Most bytes of JSON before compression, for the time that both ways need.
JSON_LIMIT: Final = 32 * 1024 * 1024
#: Most characters of `data` over all records of one run, each of which has its own copy.
RUN_LIMIT: Final = 16 * 1024 * 1024


class DecisionInput(msgspec.Struct, frozen=True):
    """Everything that a run of the evaluation depends on; `program` is Reprieve's version then.

    `spared`: the harm budgets of those of the snapshot's holds that are theirs, by demand and root.
    """

    snapshot: IdleSnapshot
    policy: Policy
    now: Nanos
    program: str = ""
    spared: dict[str, dict[str, str]] | msgspec.UnsetType = msgspec.UNSET


def encode(snapshot: IdleSnapshot, policy: Policy, now: Nanos, records: int = 1) -> dict[str, Any]:
    """Return the value for `spec.input`; `records` is how many will have a copy of it."""
    kept = relevant(snapshot, policy, now)
    spared = {
        demand: {str(root): budget_of(hold) for root, hold in holds.items() if budget_of(hold)}
        for demand, holds in kept.holds.items()
    }
    named = {demand: roots for demand, roots in spared.items() if roots} or msgspec.UNSET
    decided_on = DecisionInput(kept, policy, now, reprieve.__version__, named)
    text = msgspec.json.encode(decided_on, order="deterministic")
    return packed(text, counted(len(kept.workloads), "workload"), records)


def packed(text: bytes, size: str, records: int = 1, *, leave_out: bool = False) -> dict[str, Any]:
    """Return the value for `spec.input` that holds `text`, or states that it was too large.

    `size`: how large, for people. `leave_out`: do not even try.
    """
    omitted = {"version": VERSION, "omitted": size}
    if leave_out or len(text) > JSON_LIMIT:
        return omitted
    data = base64.b64encode(zlib.compress(text)).decode("ascii")
    if len(data) > DATA_LIMIT or len(data) * records > RUN_LIMIT:
        return omitted
    return {
        "version": VERSION,
        "encoding": ENCODING,
        "data": data,
        "sha256": hashlib.sha256(text).hexdigest(),
    }


def relevant(snapshot: IdleSnapshot, policy: Policy, now: Nanos) -> IdleSnapshot:
    """Return the rows that can matter to the decision, in an order of their own.

    Order: workloads by 1. namespace/name, their pods by 1. name, 2. uid; nodes by 1. name;
    reservations by 1. demand, 2. pod, 3. node.
    """
    workloads = (
        replace(w, pods=tuple(sorted(w.pods, key=lambda pod: (pod.name, pod.uid))))
        for w in snapshot.workloads
        if _matters(w, snapshot, policy, now)
    )
    kept = tuple(sorted(workloads, key=lambda workload: workload.key))
    roots = {workload.root.uid for workload in kept}
    on_nodes = policy.fit is Fit.NODE
    return replace(
        snapshot,
        workloads=kept,
        holds={
            demand: {root: hold for root, hold in held.items() if root in roots}
            for demand, held in snapshot.holds.items()
        },
        claims={root: whom for root, whom in snapshot.claims.items() if root in roots},
        nodes=tuple(sorted(snapshot.nodes, key=lambda node: node.name)) if on_nodes else (),
        reservations=(
            tuple(
                sorted(snapshot.reservations, key=lambda held: (held.demand, held.pod, held.node))
            )
            if on_nodes
            else ()
        ),
    )


def _matters(workload: Workload, snapshot: IdleSnapshot, policy: Policy, now: Nanos) -> bool:
    match workload.status.phase:
        case Phase.IDLE | Phase.PENDING_GPU:
            return True
        case Phase.PREEMPTED if workload.pods:
            return True
    claimed = workload.root.uid in snapshot.claims
    return claimed or in_flight(workload, snapshot, policy, now) is not None
