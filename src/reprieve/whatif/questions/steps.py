"""What to do about work that would wait or never fit, as sentences.

Changes that were tried and with which it starts come first; else what helps in general for its
reason, which is not tried.
"""

from __future__ import annotations

from typing import Final

from reprieve.engine.diagnosis.model import Diagnosis
from reprieve.engine.diagnosis.reasons import Reason, Trait, with_trait
from reprieve.units.counts import counted
from reprieve.whatif.questions.answer import Outcome, Verdict
from reprieve.wording.changes import fix_text
from reprieve.wording.diagnosis import general_step

__all__ = ["next_steps"]

_STEPS: Final = 3
#: Reasons whose own next step is to wait for capacity.
_ROOM: Final = with_trait(Trait.FULL_NODES) | {Reason.SPREAD_OR_AFFINITY_BLOCKS}


def next_steps(outcome: Outcome, diagnosis: Diagnosis) -> list[str]:
    """Return what to do, the changes that were tried first, else what helps in general.

    Of what fits nowhere, waiting is never stated to help.
    """
    if outcome.verdict is Verdict.NEVER_FITS:
        # Then a change was tried with one pod of them, and would help that one alone. Pods that
        # differ cannot be submitted without the others.
        placed = outcome.pods_on_empty_cluster
        if placed and outcome.asks.pod is not None:
            return [f"Submit {counted(placed, 'pod')} at most, request less, or add nodes."]
        if diagnosis.reason in _ROOM and not diagnosis.fixes:
            return ["Request less, or add nodes; waiting does not help."]
    if not diagnosis.fixes:
        return [general_step(diagnosis)]
    return [fix_text(fix, outcome.written.get(fix, ())) for fix in diagnosis.fixes[:_STEPS]]
