"""What happened to each job, and why: the lines of `decisions.jsonl`, and the report's stories.

Every decision is one line with its trace, seed, load and policy, in the order in which it was made.
The stories are the same by job, packed for the report: jobs as rows, texts once.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from typing import Any

from kubeworld.units.durations import HOUR, SECOND
from reprieve.engine.plan import Proof
from reprieve.simulation.replaying.lives import (
    Admitted,
    Preempted,
    Replay,
    Reserved,
    Unready,
    Victim,
)
from reprieve.simulation.replaying.quota_cluster import key_of

__all__ = ["decision_lines", "packed_stories"]


def decision_lines(replay: Replay, run: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line of JSON for every decision; `run` states which replay it is of.

    Where several planes decide, preemptions for one demand, which is a job from when it waits to
    when it starts, are reported as one: the planes so far in order, and its place in a chain.
    """
    demands = _Demands()
    for decision in replay.decisions:
        said: dict[str, Any] = {**run, "at_s": decision.at / SECOND}
        if isinstance(decision, Admitted):
            demands.served(decision.job)
            said |= {"decision": "admitted", "job": decision.job, "again": decision.again}
            said["borrows"] = decision.borrows
            if decision.nodes:
                said["nodes"] = decision.nodes
        elif isinstance(decision, Reserved):
            said |= {"decision": "reserved", "job": decision.job, "borrows": decision.borrows}
        elif isinstance(decision, Unready):
            said |= {"decision": "unready", "job": decision.job}
            said["queued_again_s"] = decision.queued_again / SECOND
        else:
            said |= {"decision": "preempted", "preemptor": decision.preemptor or None}
            if decision.plane:
                said["plane"] = decision.plane
                said |= demands.reported(decision)
            said["victims"] = [_victim(victim) for victim in decision.victims]
            said["why"] = decision.why
            if decision.proof is not None:
                said["proof"] = _proof(decision.proof)
        yield json.dumps(said, separators=(",", ":"))


class _Demands:
    """Which planes preempted for each job that waits, and who was displaced by whom."""

    def __init__(self) -> None:
        self._planes: dict[str, list[str]] = {}
        self._displaced: dict[str, tuple[int, str, int]] = {}  # when, by whom, how deep

    def served(self, job: str) -> None:
        """Record that a job starts."""
        self._planes.pop(job, None)

    def reported(self, decision: Preempted) -> dict[str, Any]:
        """Return the text about the demand of a preemption, as records state it."""
        whom, at = decision.preemptor, decision.at
        planes = self._planes.setdefault(whom, []) if whom else []
        if not planes or planes[-1] != decision.plane:
            planes.append(decision.plane)
        before, by, depth = self._displaced.get(whom, (0, "", 0))
        if not by or at - before > HOUR:
            by, depth = "", 0
        if whom:
            for victim in decision.victims:
                self._displaced[victim.job] = (at, whom, depth + 1)
        return {"stages": list(planes), "depth": depth + 1, **({"debt_of": by} if by else {})}


def _victim(victim: Victim) -> dict[str, Any]:
    said: dict[str, Any] = {
        "job": victim.job,
        "rule": victim.rule,
        "lost_device_s": victim.lost / SECOND,
        "leaves_s": victim.leaves / SECOND,
    }
    if victim.idle is not None:
        said["idle_since_s"] = victim.idle.since / SECOND
        said["ends"] = victim.idle.ends
        said["idle_until_s"] = victim.idle.until / SECOND
        said["why"] = victim.idle.why
    return said


def _proof(proof: Proof) -> dict[str, Any]:
    amounts = {
        "need": proof.need,
        "free": proof.free,
        "in_flight": proof.in_flight,
        "freed": proof.freed,
    }
    said = {name: sum(found.values()) for name, found in amounts.items()}
    return {"level": str(proof.level), **said}


def packed_stories(replay: Replay) -> str:
    """Return the stories of all jobs, compressed, in base64.

    `jobs` are [id, tenant, priority, devices, arrival, duration, finish, events] in seconds; events
    are [0, at, again, borrows] for an admission, [1, at, preemptor, rule, device-hours lost, why]
    for a displacement, [2, at, victims, why] for displacing others, [3, at, borrows] for quota with
    which it waits for nodes, [4, at] for quota given back for want of nodes, and [5, at, preemptor,
    rule, device-hours lost, why, idle since, comes back at] for being preempted while it was idle:
    for no work in particular the preemptor is null, and so is the last where its work is done. Jobs
    are named by their row, rules and reasons by their place in `texts`.
    """
    rows = {key_of(life.job): row for row, life in enumerate(replay.lives)}
    events: list[list[Any]] = [[] for _ in rows]
    texts: dict[str, int] = {}
    for decision in replay.decisions:
        at = round(decision.at / SECOND)
        if isinstance(decision, Admitted):
            events[rows[decision.job]].append([0, at, int(decision.again), int(decision.borrows)])
            continue
        if isinstance(decision, Reserved):
            events[rows[decision.job]].append([3, at, int(decision.borrows)])
            continue
        if isinstance(decision, Unready):
            events[rows[decision.job]].append([4, at])
            continue
        why = texts.setdefault(decision.why, len(texts))
        preemptor = rows.get(decision.preemptor)
        if preemptor is not None:
            chosen = [rows[victim.job] for victim in decision.victims]
            events[preemptor].append([2, at, chosen, why])
        for victim in decision.victims:
            rule = texts.setdefault(victim.rule, len(texts))
            hours = round(victim.lost / HOUR, 2)
            if victim.idle is None:
                events[rows[victim.job]].append([1, at, preemptor, rule, hours, why])
                continue
            since, until = round(victim.idle.since / SECOND), round(victim.idle.until / SECOND)
            text = texts.setdefault(victim.idle.why, len(texts))
            back = None if victim.idle.ends else until
            reported = [5, at, preemptor, rule, hours, text, since, back]
            events[rows[victim.job]].append(reported)
    jobs = [
        [
            life.job.id,
            life.job.tenant,
            life.job.priority,
            life.job.devices,
            round(life.job.arrival / SECOND),
            round(life.job.duration / SECOND),
            None if life.finished is None else round(life.finished / SECOND),
            reported,
        ]
        for life, reported in zip(replay.lives, events, strict=True)
    ]
    content = json.dumps({"texts": list(texts), "jobs": jobs}, separators=(",", ":"))
    return base64.b64encode(gzip.compress(content.encode(), 6, mtime=0)).decode()
