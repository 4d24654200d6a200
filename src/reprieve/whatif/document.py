"""An answer as a document: the shape of `-o json`, whose schema is published with the docs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from reprieve.units.instants import format_instant
from reprieve.whatif.answer import Answer, Displaced, Outcome

__all__ = ["VERSION", "answer_document"]

VERSION: Final = "reprieve.dev/plan/v1"


def answer_document(answer: Answer, controllers: Sequence[str]) -> dict[str, Any]:
    """Return an answer as plain values."""
    snapshot = answer.snapshot
    return {
        "version": VERSION,
        "verdict": None if answer.verdict is None else answer.verdict.value,
        "reason": answer.reason,
        "message": answer.message,
        "submitted": [_outcome(each) for each in answer.outcomes],
        "victims": [_victim(each) for each in answer.victims],
        "placement": [{"pod": each.pod, "node": each.node} for each in answer.placement],
        "fixes": [],
        "snapshot": {
            "at": format_instant(snapshot.at),
            "nodes": snapshot.count("nodes"),
            "pods": snapshot.count("pods"),
            "namespaces": snapshot.namespaces,
            "unseen": [
                {"kind": each.resource.qualified, "namespaces": list(each.namespaces)}
                for each in snapshot.unseen
            ],
        },
        "controllers": list(controllers),
        "reserved": False,
        "complete": answer.rest,
        "warnings": list(answer.warnings),
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "kind": outcome.kind,
        "namespace": outcome.namespace,
        "name": outcome.name,
        "verdict": None if outcome.verdict is None else outcome.verdict.value,
        "reason": outcome.reason,
        "message": outcome.message,
        "queue": outcome.queue,
        "clusterQueue": outcome.cluster_queue,
        "priority": outcome.priority,
        "pods": outcome.pods,
        "placed": outcome.placed,
    }


def _victim(victim: Displaced) -> dict[str, Any]:
    return {
        "kind": victim.kind,
        "namespace": victim.namespace,
        "name": victim.name,
        "uid": victim.uid,
        "rule": victim.rule,
        "devices": victim.devices,
        "lostDeviceSeconds": victim.lost_device_seconds,
    }
