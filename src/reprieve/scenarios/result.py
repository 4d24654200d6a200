"""What came of a scenario: the outcome of each step and, after a failure, what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Outcome", "ScenarioResult", "Seen", "StepResult"]


class Outcome(StrEnum):
    """How a step or a scenario ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step that was played; `detail` states what was wrong or why it was skipped."""

    number: int
    keyword: str
    subject: str
    outcome: Outcome
    seconds: float
    detail: str = ""

    def text(self) -> str:
        """Return one line."""
        line = f"{self.number:>3} {self.outcome:<7} {self.seconds:6.1f} s  {self.keyword}"
        return " ".join(part for part in (line, self.subject, self.detail) if part)


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of the cluster when a step failed, each entry one line."""

    gpuworkloads: Sequence[str]
    transitions: Sequence[str]
    pods: Sequence[str]
    events: Sequence[str]
    operator_log: Sequence[str]


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """One played scenario; `reason` is empty when it passed, `seen` is None unless it failed."""

    scenario: str
    outcome: Outcome
    steps: Sequence[StepResult]
    reason: str = ""
    seen: Seen | None = None

    def text(self) -> str:
        """Return the whole story for people, a block of lines."""
        lines = [
            f"scenario {self.scenario}: {self.outcome}" + (f": {self.reason}" * bool(self.reason))
        ]
        lines += [step.text() for step in self.steps]
        if self.seen is not None:
            for title, entries in (
                ("GpuWorkloads", self.seen.gpuworkloads),
                ("transitions", self.seen.transitions),
                ("pods", self.seen.pods),
                ("events", self.seen.events),
                ("operator log", self.seen.operator_log),
            ):
                lines.append(f"--- {title}" + ("" if entries else ": none"))
                lines += [f"    {entry}" for entry in entries]
        return "\n".join(lines)
