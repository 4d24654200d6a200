"""What the planes decide about a cluster in memory: the answers of `reprieve plan` and `explain`.

The planes are those of the operator; they run in virtual time until nothing moves any more. The
same cluster, manifests and settings give the same decision. Nothing is written anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reprieve.answers.asking import answer
from reprieve.answers.diagnosing import PlanesOfSnapshot
from reprieve.answers.kinds import asked_of
from reprieve.answers.layout import Style, lines_of
from reprieve.answers.sources import SnapshotSource
from reprieve.lab.cluster import Cluster
from reprieve.lab.planes import planes_of
from reprieve.settings.start_up import DEFAULT_NAMESPACE
from reprieve.whatif.deciders import Deciders
from reprieve.whatif.questions.answer import Answer, Verdict
from reprieve.whatif.questions.planning import planned
from reprieve.whatif.run import settled
from reprieve.whatif.submitting.submission import Submitted, read_documents, schedulers_named

__all__ = ["Decision", "Verdict", "apply", "decide", "explain"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of what was submitted.

    Attributes:
        verdict: the worst of all objects that a plane decides about; None where none does.
        reason: the word for which it waits, such as `Full`; empty where it starts.
        message: the same in a sentence.
        victims: what is evicted for it, as `KIND NAMESPACE/NAME`.
        placements: the node of each pod that was placed, by the pod's name.
        lost_device_seconds: device seconds of work that the victims lose, as far as known.
    """

    verdict: Verdict | None
    reason: str
    message: str
    victims: tuple[str, ...]
    placements: Mapping[str, str]
    lost_device_seconds: int
    _cluster: Cluster = field(repr=False)
    _submitted: tuple[Submitted, ...] = field(repr=False)
    _deciders: Deciders = field(repr=False)


def decide(
    cluster: Cluster,
    manifests: str,
    *,
    planes: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    namespace: str = "default",
) -> Decision:
    """Return what would happen if these manifests were submitted to the cluster now.

    `planes`: some of `idle`, `scheduling` and `quota`; by default those for which the cluster has
    objects. `settings`: sections as in a `--config` file, such as `{"quota": {"profile": "best"}}`.

    Raises:
        UsageError: manifests, a plane or a setting are not accepted.
        Undecided: the planes did not come to a decision.
    """
    schedulers = schedulers_named(read_documents(manifests, "manifests"))
    deciders = planes_of(cluster.snapshot, planes, schedulers, settings or {})
    submitted = cluster.read(manifests, namespace)
    found = _run(planned(None, cluster.snapshot, deciders, submitted, fixes=False))
    return _decision(found, cluster, submitted, deciders)


def apply(decision: Decision) -> Cluster:
    """Return the cluster as it is when all that was decided has been carried out."""
    run = settled(decision._cluster.snapshot, decision._deciders, decision._submitted)
    return Cluster(run.overlay.frozen())


def explain(
    cluster: Cluster,
    subject: str,
    namespace: str = "default",
    *,
    planes: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """Return why work waits or why it was evicted, and what can be done, as `reprieve explain`.

    `subject`: `KIND/NAME`, such as `job/train`.

    Raises:
        UsageError: there is no such object, or a plane or a setting is not accepted.
    """
    snapshot = cluster.snapshot

    def deciders(schedulers: tuple[str, ...]) -> Deciders:
        return planes_of(snapshot, planes, schedulers, settings or {})

    found = _run(
        answer(
            SnapshotSource(snapshot),
            asked_of(subject),
            namespace,
            operator_namespace=DEFAULT_NAMESPACE,
            diagnose=PlanesOfSnapshot(snapshot, deciders),
        )
    )
    return "\n".join(lines_of(found, Style()))


def _decision(
    found: Answer, cluster: Cluster, submitted: Sequence[Submitted], deciders: Deciders
) -> Decision:
    return Decision(
        found.verdict,
        found.reason,
        found.message,
        tuple(f"{each.kind} {each.namespace}/{each.name}" for each in found.victims),
        {each.pod: each.node for each in found.placement},
        sum(each.lost_device_seconds or 0 for each in found.victims),
        cluster,
        tuple(submitted),
        deciders,
    )


def _run(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, also where a loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main).result()
