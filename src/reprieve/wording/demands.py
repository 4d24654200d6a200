"""One demand in words: its stages, both halves of its proof, and why other planes evict nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from reprieve.api.reprieve import PreemptionSpec
from reprieve.engine.demands import Half, Rejection, Stage

__all__ = ["demand_lines", "halves_text", "proof_text", "rejection_text", "stages_text"]

_REJECTIONS: Final[Mapping[str, str]] = {
    Rejection.OWNED.value: "another plane is the owner of the demand",
    Rejection.NOT_ASKED.value: "the demand has not opted in, or there is no idle work",
    Rejection.DECLINED.value: "no idle work helps",
    Rejection.UNANSWERED.value: "it has not answered within 5 s",
    Rejection.FEWER.value: "fewer devices are evicted by priority",
    Rejection.IDLE_FIRST.value: "idle work suffices",
}
_HALVES: Final[Mapping[str, str]] = {
    Half.PROVEN.value: "proven",
    Half.SETTLED.value: "settled before",
    Half.UNPROVEN.value: "not proven",
}


def demand_lines(spec: PreemptionSpec) -> Iterator[str]:
    """Yield what a record states of its demand; nothing where one plane decides alone."""
    if not spec.stages:
        return
    yield f"Stages: {stages_text((each.plane, each.preemption) for each in spec.stages)}"
    yield f"Proof: {proof_text(spec)}"
    for each in spec.rejected:
        yield f"Not by {each.plane}: {rejection_text(each.reason)}"
    if spec.depth > 1:
        whom = f", which {spec.debt_of} displaced before" if spec.debt_of else ""
        yield f"Depth {spec.depth}: the preemptor came back{whom}"


def stages_text(stages: Iterable[Stage | tuple[str, str]]) -> str:
    """Return stages in a row, those of other records with their names."""
    found = ((s.plane, s.record) if isinstance(s, Stage) else s for s in stages)
    return ", then ".join(f"{plane} ({name})" if name else str(plane) for plane, name in found)


def proof_text(spec: PreemptionSpec) -> str:
    """Return how far both halves of a proof are proven."""
    return halves_text(spec.proof.quota, spec.proof.placement)


def halves_text(quota: str, placement: str) -> str:
    """Return how far quota and placement are proven, each by its word in a record."""
    return f"quota {_HALVES.get(quota, quota)}, placement {_HALVES.get(placement, placement)}"


def rejection_text(reason: str) -> str:
    """Return why another plane evicts nothing for the demand."""
    return _REJECTIONS.get(reason, reason)
