"""An estimate in words: by when, by what that is known, and what it assumes."""

from __future__ import annotations

from collections.abc import Callable

from kubeworld.units.instants import Nanos
from reprieve.engine.diagnosis.estimates import FEWEST, Basis, Bound, Estimate

__all__ = ["estimate_text", "too_few"]


def estimate_text(
    estimate: Estimate, when: Callable[[Nanos], str], long: Callable[[int], str]
) -> str:
    """Return one clause; `when` writes an instant, `long` a duration."""
    measured = estimate.measured
    match estimate.basis:
        case None:
            return f"no estimate: {estimate.why}"
        case Basis.MEASURED:
            assert measured is not None and measured.wait is not None
            return (
                f"{measured.quantile:.0%} of similar work started within {long(measured.wait)} "
                f"({measured.confidence:.0%} confidence, {measured.cases:,} waits {estimate.where})"
            )
        case Basis.RUN_TIME:
            why = f"when {estimate.holder} ends at the latest ({estimate.field})"
        case Basis.LEAVING:
            assert estimate.at is not None
            return f"not later than {when(estimate.at)}, when those that are preempted have ended"
        case _:
            why = "when a protection or a pause has ended"
    assert estimate.at is not None
    return f"not later than {when(estimate.at)}, {why}, if no other work comes before it"


def too_few(measured: Bound, where: str) -> str:
    """Return why measured waits bound nothing."""
    if measured.cases < FEWEST:
        waits = "wait was" if measured.cases == 1 else "waits were"
        return f"{measured.cases} similar {waits} measured {where}, {FEWEST} are needed"
    return f"too many of {measured.cases} similar ones {where} still wait"
