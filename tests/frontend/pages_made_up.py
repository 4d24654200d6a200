"""Made-up pages in the forms of the real ones: empty, small, and as large as they are made for."""

from __future__ import annotations

import random
import time
from typing import Any

Rows = dict[str, list[Any]]
Tables = dict[str, tuple[list[list[str]], Rows]]
Made = tuple[dict[str, Any], Tables]

SIZES = {"empty": (0, 0, 0), "small": (8, 12, 6), "large": (5_000, 50_000, 5_000)}
_TEAMS = ("team-a", "team-b", "team-c", "team-d", "team-e")
_REASONS = ("HeldByOthers", "BehindHead", "NeverFits", "QuotaExceeded", "NoNodeFits")


def columns(text: str) -> list[list[str]]:
    """Return columns written as `name:kind`, text where no kind is given."""
    return [[*each.split(":"), "text"][:2] for each in text.split()]


def now(size: str, tick: int) -> Made:
    nodes, holders, waiters = SIZES[size]
    drawn, at = random.Random(7), time.time()
    held: Rows = {}
    for i in range(holders):
        team, amount = drawn.choice(_TEAMS), drawn.choice((1, 2, 4, 8, 64))
        unit = (
            f"job/{team}/train-{i}" if drawn.random() < 0.9 else f"another tenant's work #{i:04x}"
        )
        idle = (amount if drawn.random() < 0.15 else 0) + 0 * tick
        state = "Idle" if idle else drawn.choice(("Running", "Running", "Running", "Leaving"))
        since = at - drawn.uniform(60, 400_000)
        queue = drawn.choice(("", f"{team}-queue"))
        held[f"h{i}"] = [
            unit, queue, "research" if queue else "", amount, idle,
            amount if state == "Leaving" else 0, amount, max(1, amount // 8), since, state,
        ]  # fmt: skip
    if holders:
        held["h0"][3] = 8 + tick % 5
    waiting: Rows = {
        f"w{i}": [
            f"job/{drawn.choice(_TEAMS)}/next-{i}", f"{drawn.choice(_TEAMS)}-queue",
            drawn.choice((1, 8, 64)), "nvidia.com/gpu", at - drawn.uniform(5, 9_000),
            drawn.choice(_REASONS),
            "64 GPUs are wanted in one zone, of which 24 are free",
        ]
        for i in range(waiters)
    }  # fmt: skip
    on: Rows = {}
    total = dict.fromkeys(("working", "idle", "leaving", "claimed", "free"), 0)
    for i in range(nodes):
        parts = dict.fromkeys(total, 0)
        for _ in range(8):
            part = drawn.choices(tuple(parts), (70, 10, 3, 3, 14))[0]
            parts[part] += 1
            total[part] += 1
        pool = "h100" if i % 3 else "a100"
        on[f"node-{i}"] = [
            f"node-{i}", pool, 8, *parts.values(), ["job/team-a/train-1"], i % 17 == 16,
            [f"b{i // 32}", f"r{i // 8}"] if i % 29 else [],
        ]  # fmt: skip
    values = {
        "resource": "nvidia.com/gpu",
        "resources": ["nvidia.com/gpu", "amd.com/gpu", "cpu"],
        "bar": {"total": sum(total.values()), **total},
        "others": None,
        "counts": {"holders": holders, "waiters": waiters, "waiting": waiters, "nodes": nodes},
        "hour": {
            "preemptions": 3 if holders else 0, "units": 14 if holders else 0,
            "spared": 3 if holders else 0, "lostDeviceSeconds": 113_040 if holders else 0,
        },
        "levels": ["example.com/block", "example.com/rack"] if nodes else [],
        "unseen": [] if holders else ["preemptions.reprieve.dev"],
    }  # fmt: skip
    return values, {
        "holders": (
            columns(
                "unit:unit queue cohort amount:number idle:number leaving:number pods:number"
                " nodes:number since:instant state:word"
            ),
            held,
        ),
        "waiters": (
            columns("unit:unit queue amount:number resource since:instant reason:word message"),
            waiting,
        ),
        "nodes": (
            columns(
                "node pool total:number working:number idle:number leaving:number claimed:number"
                " free:number units:list cordoned:flag domains:list"
            ),
            on,
        ),
    }


def waiting(size: str, tick: int) -> Made:
    _, _, waiters = SIZES[size]
    drawn, at = random.Random(8), time.time()
    rows: Rows = {}
    for i in range(waiters):
        reason = drawn.choice(_REASONS)
        rows[f"w{i}"] = [
            f"job/{drawn.choice(_TEAMS)}/next-{i}", drawn.choice(("quota", "scheduling")),
            f"{drawn.choice(_TEAMS)}-queue", i + 1, drawn.choice((1, 8)), drawn.choice((8, 64)),
            "8 pods of 8 GPUs", drawn.choice((0, 100)), at - drawn.uniform(5, 9_000), reason,
            "64 GPUs are wanted, 24 are free", "ask for fewer GPUs, or wait",
        ]  # fmt: skip
    reasons = {row[9]: sum(each[9] == row[9] for each in rows.values()) for row in rows.values()}
    return {"resource": "nvidia.com/gpu", "resources": ["nvidia.com/gpu"], "unseen": []}, {
        "waiting": (
            columns(
                "unit:unit plane:word queue position:number pods:number amount:number shape"
                " priority:number since:instant reason:word message step"
            ),
            rows,
        ),
        "reasons": (
            columns("reason:word units:number amount:number"),
            {name: [name, count, count * 8] for name, count in reasons.items()},
        ),
    }


def queues(size: str, tick: int) -> Made:
    names = [] if size == "empty" else [f"{team}-queue" for team in _TEAMS]
    quota: Rows = {}
    shares: Rows = {}
    if names:
        quota["c"] = [
            "research", "Cohort", "", 0, "default", "nvidia.com/gpu", 0, 300, 0, 0, None, None,
        ]  # fmt: skip
        shares["c"] = ["research", "Cohort", "", 0, 1.0, 0, "", None, None, False, ""]
    for i, name in enumerate(names):
        quota[name] = [
            name, "ClusterQueue", "research", 1, "default", "nvidia.com/gpu", 64, 40 + i * 20,
            max(0, i * 20 - 24), max(0, 24 - i * 20), None, 32,
        ]  # fmt: skip
        shares[name] = [
            name, "ClusterQueue", "research", 1, 1.0, i * 25,
            f"borrows {i * 8} of 320 nvidia.com/gpu that can be lent: {i * 25} / weight 1",
            i, 4, i == 4, "",
        ]  # fmt: skip
    reclaimable: Rows = {
        name: [f"job/team-a/{name}-x", name, 8, 24, 0, time.time() - 500] for name in names[2:]
    }
    return {"resource": "nvidia.com/gpu", "resources": ["nvidia.com/gpu"], "unseen": []}, {
        "queues": (
            columns(
                "queue kind:word parent depth:number flavor resource nominal:number used:number"
                " borrowed:number lent:number borrowingLimit:number lendingLimit:number"
            ),
            quota,
        ),
        "shares": (
            columns(
                "queue kind:word parent depth:number weight:number share:number arithmetic"
                " pending:number admitted:number stopped:flag message"
            ),
            shares,
        ),
        "reclaimable": (
            columns("unit:unit queue amount:number borrowed:number priority:number since:instant"),
            reclaimable,
        ),
    }


def preemptions(size: str, tick: int) -> Made:
    _, holders, _ = SIZES[size]
    drawn, at = random.Random(9), time.time()
    rows: Rows = {
        f"p{i}": [
            f"quota-7c{i:02x}", at - i * 700 - 60, drawn.choice(("quota", "scheduling", "idle")),
            "job/team-a/train-1" if i % 3 else "another tenant's work #a3f1", 2, 16, 24, 23_040,
            drawn.choice(("Completed", "Completed", "Evicting", "Abandoned")), 252.0,
            "borrowed over nominal", ["job/team-b/sweep-17", "job/team-c/llm"], False,
        ]
        for i in range(min(holders, 2_000))
    }  # fmt: skip
    values = {
        "planes": ["idle", "quota", "scheduling"],
        "states": ["Planned", "Noticed", "Evicting", "Completed", "Abandoned"],
        "found": len(rows),
        "shown": len(rows),
    }
    return values, {
        "preemptions": (
            columns(
                "preemption decided:instant plane:word preemptor:unit units:number victims:number"
                " gpus:number lost:number state:word took:duration rule whose:list dryRun:flag"
            ),
            rows,
        )
    }


def preemption(size: str, tick: int) -> Made:
    at = time.time()
    values = {
        "address": "quota-7c21", "record": "quota-7c21", "plan": "quota-7c21-1", "plane": "quota",
        "attempt": 1, "dryRun": False, "state": "Completed", "reason": "", "decided": at - 900,
        "started": at - 899, "finished": at - 648, "preemptor": "job/team-a/train",
        "need": {
            "resource": "nvidia.com/gpu", "needed": 64, "free": 24, "coming": 0, "lacking": 40,
            "freed": 40, "exact": True,
        },
        "reprieved": {"reprieved": 3},
        "proof": {
            "level": "quota", "text": "it fits in its quota", "irreducible": True, "upheld": True,
        },
        "again": {"state": "Same", "text": ""},
        "totals": {
            "objects": 2, "units": 2, "shown": 2, "gpus": 40, "lost": 61_560,
            "states": {"Evicted": 2}, "complete": True,
        },
        "command": "reprieve explain preemption/quota-7c21",
    }  # fmt: skip
    why = "borrowed 64 over nominal; of 9 candidates it loses least but two that are too small"
    made_way: Rows = {
        "a": ["job/team-b/sweep-17", 1, 24, "borrowed over nominal", why, 23_040, "Evicted",
              at - 700, "", "node-3", 1],
        "b": ["another tenant's work #a3f1", 1, 16, "borrowed over nominal", "", 38_520, "Evicted",
              at - 690, "", "", None],
    }  # fmt: skip
    spared: Rows = {
        "c": ["job/team-c/llm-70b", 1, 512, "Spared", "within nominal", None, 100, "team-c-queue",
              9_000_000, "node-1"],
        "d": ["other tenants' work", 7, 64, "Reprieved", "", None, None, None, None, None],
    }  # fmt: skip
    return values, {
        "victims": (
            columns(
                "unit:unit objects:number gpus:number rule why lost:number state:word since:instant"
                " message node place:number"
            ),
            made_way,
        ),
        "spared": (
            columns(
                "unit:unit objects:number gpus:number fate:word why place:number priority:number"
                " queue lost:number node"
            ),
            spared,
        ),
        "sums": (columns("pool namespace group rule state:word units:number"), {}),
        "amounts": (
            columns("resource needed:number free:number inFlight:number freed:number"),
            {"g": ["nvidia.com/gpu", 64, 24, 0, 40]},
        ),
        "placement": (columns("node pods:number"), {"n": ["node-3", 8]}),
    }


def workload(size: str, tick: int) -> Made:
    at = time.time()
    why = "borrowed 64 over nominal; of 9 candidates it loses least but two that are too small"
    values = {
        "unit": "job/team-b/sweep-17", "kind": "Job", "namespace": "team-b", "name": "sweep-17",
        "state": "Runs", "since": at - 2_000, "created": at - 14_000, "queue": "main",
        "clusterQueue": "team-b-queue", "priority": 0, "attempts": 2, "gpus": 64,
        "idle": {"gpus": 8, "phase": "Idle", "since": at - 600, "utilization": 1.5, "polled": at},
        "totals": {"displaced": 1, "lost": 61_560, "day": 1}, "waits": None,
        "command": "reprieve explain job/sweep-17 -n team-b",
    }  # fmt: skip
    life: Rows = {
        "0": ["Waits", at - 14_000, at - 11_000, 64, True, ""],
        "1": ["Runs", at - 11_000, at - 5_000, 64, False, "quota-7c21"],
        "2": ["Leaves", at - 5_000, at - 4_800, 64, True, "quota-7c21"],
        "3": ["Waits", at - 4_800, at - 2_000, 64, True, ""],
        "4": ["Runs", at - 2_000, None, 64, True, ""],
    }
    if size == "empty":
        values |= {
            "state": "Waits", "attempts": 1, "idle": None,
            "totals": {"displaced": 0, "lost": 0, "day": 0},
            "waits": {
                "plane": "quota", "reason": "BehindHead", "message": "two are before it",
                "step": "wait, or request less", "since": at - 300, "queue": "team-b-queue",
                "position": 3, "shape": "8 pods of 8 GPUs", "resource": "nvidia.com/gpu",
            },
        }  # fmt: skip
        life = {"0": ["Waits", None, None, 64, True, ""]}
    turns: Rows = {
        "0": [
            "quota-7c21", at - 5_000, at - 4_800, "quota", "another tenant's work #a3f1",
            "reclaim of its own nominal quota", 8, 64, 61_560, 6_000, 2, why,
            "48 GPUs instead of 64, or a queue with nominal quota of 64", "Requeued",
        ]
    }  # fmt: skip
    pods: Rows = {"p": ["node-3", "Running", 8, 64, at - 2_000, ["sweep-17-0", "sweep-17-1"]]}
    displaced: Rows = {
        "d": [
            "quota-7c22",
            at - 2_100,
            "quota",
            1,
            64,
            9_000,
            "borrowed",
            ["job/team-c/x"],
            "Completed",
        ]
    }
    return values, {
        "life": (
            columns("state:word begin:instant end:instant gpus:number exact:flag preemption"),
            life,
        ),
        "displacements": (
            columns(
                "preemption at:instant ended:instant plane:word by:unit rule objects:number"
                " gpus:number lost:number ran:duration times:number why spared outcome:word"
            ),
            {} if size == "empty" else turns,
        ),
        "displaced": (
            columns(
                "preemption at:instant plane:word units:number gpus:number lost:number rule"
                " whose:list state:word"
            ),
            {} if size == "empty" else displaced,
        ),
        "pods": (
            columns("node state:word pods:number gpus:number since:instant names:list"),
            {} if size == "empty" else pods,
        ),
        "unknown": (columns("what count:number"), {"x": ["something new", 3]}),
    }


def health(size: str, tick: int) -> Made:
    at = time.time()
    some = size != "empty"
    leader = {
        "holder": "reprieve-7d9f", "namespace": "reprieve-system", "epoch": 3, "since": at - 90_000,
        "renewed": at - 2, "held": True,
    }  # fmt: skip
    values: dict[str, Any] = {
        "leader": leader if some else None, "open": int(some), "polled": at - 12 if some else None,
        "day": {"plans": 14 * some, "abandoned": 0, "faults": int(some)}, "unseen": [],
        "version": "1.0.0rc1",
    }  # fmt: skip
    tables: Tables = {
        "open": (
            columns(
                "preemption decided:instant plane:word preemptor:unit state:word victims:number"
                " left:number"
            ),
            {"o": ["quota-7c21", at - 30, "quota", "job/team-a/train", "Evicting", 2, 1]},
        ),
        "loops": (
            columns(
                "members:list displacements:number lost:number began:instant until:instant held"
            ),
            {"l": [["job/team-a/x", "job/team-b/y"], 3, 7_200, at - 900, at + 900, "x, for now"]},
        ),
        "faults": (
            columns("at:instant where what preemption"),
            {"f": [at - 90, "scheduling", "pod/team-a/x could not be evicted", "scheduling-1"]},
        ),
        "kinds": (
            columns("kind health:word namespaces:number objects:number error"),
            {"k": ["pods", "Watching", None, 31, ""]},
        ),
    }
    return values, {name: (names, rows if some else {}) for name, (names, rows) in tables.items()}


def history(size: str, tick: int) -> Made:
    nodes, _, _ = SIZES[size]
    at = time.time()
    times = [at - 3600 + 60 * (minute + 1) for minute in range(60)]
    teams = _TEAMS if nodes else ()
    lines = {team: [None, *(8.0 * (minute % 7) for minute in range(59))] for team in teams}
    values = {
        "resource": "nvidia.com/gpu", "resources": ["nvidia.com/gpu"], "range": "hour",
        "by": "team", "measure": "working", "step": 60, "every": 60.0,
        "oldest": at - 86_400 if nodes else None, "from": at - 3600, "to": at, "times": times,
        "lines": lines, "others": 0, "source": "",
    }  # fmt: skip
    kinds = "team working:number idle:number waiting:number preempted:number lost:number"
    sums: Rows = {team: [team, 96.5, 4.25, 12, 3, 7200] for team in teams}
    return values, {"teams": (columns(kinds), sums)}


def mine(size: str, tick: int) -> Made:
    nodes, _, _ = SIZES[size]
    at = time.time()
    few = bool(nodes)
    values = {
        "resource": "nvidia.com/gpu", "resources": ["nvidia.com/gpu", "cpu"],
        "namespaces": ["team-a"], "unseen": ["nodes"],
        "counts": {
            "running": 1 * few, "waiting": 1 * few, "preempted": 1 * few, "notified": 1 * few
        },
    }  # fmt: skip
    gpu = "nvidia.com/gpu"
    tables = {
        "queues": (
            ("queue namespace clusterQueue flavor resource used:number reserved:number"
            " nominal:number pending:number admitted:number message"),
            ["main", "team-a", "team-a-queue", "h100", gpu, 8, 8, 16, 1, 1, ""],
        ),
        "running": (
            "unit:unit queue amount:number resource idle:number since:instant state:word",
            ["job/team-a/train-1", "team-a-queue", 8, gpu, 0, at - 600, "Running"],
        ),
        "notified": (
            ("unit:unit due:instant answered:number requested:number state:word by rule message"),
            [
                "job/team-a/train-1", at + 245, 5, 8, "Saving", "another tenant's work #a3f1",
                "higher priority", "step 1,200 of 4,000",
            ],
        ),
        "waiting": (
            ("unit:unit queue position:number amount:number resource since:instant reason:word"
            " message step"),
            [
                "job/team-a/next-1", "team-a-queue", 1, 16, gpu, at - 60, "HeldByOthers",
                "team-a-queue: 8 of 16 used, requests 16", "request at most 8",
            ],
        ),
        "preempted": (
            ("unit:unit at:instant by:unit rule lost:number state:word back:instant tried:instant"
            " position:number preemption"),
            [
                "job/team-a/next-1", at - 900, "another tenant's work #a3f1", "taken back", 7200,
                "Waiting", None, at + 30, 1, "quota-7c21",
            ],
        ),
    }  # fmt: skip
    return values, {
        name: (columns(kinds), {"one": row} if few else {}) for name, (kinds, row) in tables.items()
    }


def harm(size: str, tick: int) -> Made:
    nodes, _, _ = SIZES[size]
    at = time.time()
    ledger = (
        "payer beneficiary plane:word reason displacements:number lost:number saved:number"
        " waitSaved:number"
    )
    paid: Rows = {
        "one": ["team-a", "team-b", "quota", "InCohortReclamation", 4, 12.5, 2.0, 6.25],
        "two": ["team-c", "nobody", "idle", "idle", 2, 0.0, 0.0, 0.0],
    }
    budgets: Rows = {
        "day/team-a": [
            "batch-day", "team-a", "24h", 20, 20, 31.2, 50, at + 3_600, "Hold",
        ],
        "day/team-c": ["batch-day", "team-c", "24h", 2, 20, 0.0, 50, None, "Hold"],
        "office/team-a": [
            "office", "team-a", "0 8 * * MON-FRI UTC for 10h", 3, None, 6.0, 12, None, "Report",
        ],
    }  # fmt: skip
    kinds = (
        "budget of window displacements:number mostDisplacements:number lost:number"
        " mostLost:number free:instant holds:word"
    )
    few = bool(nodes)
    values = {
        "counts": {"budgets": 3 * few, "exhausted": 1 * few},
        "refused": ["odd: spec.schedule: hour '25'; accepted: 0 to 23"] if few else [],
    }
    return values, {
        "budgets": (columns(kinds), budgets if few else {}),
        "week": (columns(ledger), paid if few else {}),
        "month": (columns(ledger), paid if few else {}),
    }


PAGES = {
    "harm": harm,
    "mine": mine,
    "history": history,
    "now": now,
    "waiting": waiting,
    "queues": queues,
    "preemptions": preemptions,
    "preemption": preemption,
    "workload": workload,
    "health": health,
}
