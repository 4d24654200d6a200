"""Tables for docs/idle/, made from the tables that the engine decides by."""

from __future__ import annotations

from reprieve.engine.idle.literal import SWITCHES
from reprieve.engine.idle.model import Phase
from reprieve.engine.idle.transitions import TRANSITIONS, Action, Requeue, Transition

__all__ = ["switches_markdown", "transitions_markdown"]

_ACTIONS = {
    Action.NONE: "",
    Action.DELETE_ROOT: "delete the root",
    Action.DELETE_GPU_WORKLOAD: "delete the GpuWorkload",
    Action.EVALUATE: "evaluate",
}


def transitions_markdown() -> str:
    """Return the table of transitions in the order in which its rows are tried."""
    rows = [
        "| # | from | condition | to | changes | event | then | next look |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in TRANSITIONS:
        cells = (
            str(row.number),
            _phases(row),
            row.condition.value,
            "(same)" if row.to is None else row.to.value,
            "; ".join(effect.value for effect in row.effects),
            "" if row.event is None else row.event.value,
            _ACTIONS[row.action],
            "" if row.requeue is Requeue.NONE else row.requeue.value,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def switches_markdown() -> str:
    """Return the table of literal switches with the hazards' numbers."""
    rows = ["| `gpuPreemption.literal.` | hazard | off (default) | on |", "|---|---|---|---|"]
    rows.extend(
        f"| `{switch.name}` | {switch.hazard} | {switch.default} | {switch.literal} |"
        for switch in SWITCHES
    )
    return "\n".join(rows) + "\n"


def _phases(row: Transition) -> str:
    return ", ".join("(none)" if phase is Phase.NEW else phase.value for phase in row.phases)
