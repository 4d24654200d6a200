"""An answer as a value: what is printed as text, and as JSON or YAML with a published schema.

Four parts, always in this order: the verdict in one sentence, the evidence, the next steps, and how
sure that is. What the caller may not see stands before all of it.
"""

from __future__ import annotations

import inspect
from enum import StrEnum
from typing import Any

import msgspec

from reprieve.whatif.questions.document import EstimateDocument, IdleDocument

__all__ = [
    "VERSION",
    "Answer",
    "Demand",
    "Displaced",
    "Fact",
    "State",
    "Step",
    "Subject",
    "Waiting",
    "schema",
]

#: Of the document; a field whose meaning changes, or that is removed, makes another version.
VERSION = 1


class State(StrEnum):
    """What is with the subject now."""

    RUNS = "Runs"
    WAITS = "Waits"
    STARTS = "Starts"
    LEAVES = "Leaves"
    STOPPED = "Stopped"
    FINISHED = "Finished"
    GONE = "Gone"
    UNKNOWN = "Unknown"


class _Struct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Common settings: camel case in JSON, defaults left out."""


class Subject(_Struct, frozen=True):
    """What was queried."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else self.name


class Fact(_Struct, frozen=True):
    """One row of evidence."""

    name: str
    text: str


class Step(_Struct, frozen=True):
    """Something to do: a command, or a field of an object and what to write there."""

    text: str
    command: str = ""
    field: str = ""


class Demand(_Struct, frozen=True):
    """Where several planes decide together: the plane that evicts for it, and all that decide.

    `lacks_quota` and `lacks_nodes` in base units, by resource; `evicted`: who is evicted for it
    now, in which stages.
    """

    owner: str
    planes: list[str]
    lacks_quota: dict[str, int] = {}
    lacks_nodes: dict[str, int] = {}
    evicted: str = ""
    stages: str = ""


class Waiting(_Struct, frozen=True):
    """Why it waits: the plane whose question it is, a word of the closed list, what is reported.

    `why`: the cause in words, as the verdict states it. `message`: what its objects report.
    `lacks`: in base units, by resource. `refused`: how many who could be preempted stay, by rule.
    `filters`: how many nodes each filter refused. `earliest`: when it may start at the earliest.
    `estimate`: when it starts at the latest; `idle`: why no idle work is preempted for it.
    `demand`: where several planes decide together.
    """

    plane: str
    reason: str
    why: str = ""
    message: str = ""
    since: str = ""
    lacks: dict[str, int] = {}
    others: list[str] = []
    refused: dict[str, int] = {}
    filters: dict[str, int] = {}
    earliest: str = ""
    estimate: EstimateDocument | None = None
    idle: IdleDocument | None = None
    demand: Demand | None = None


class Displaced(_Struct, frozen=True):
    """One displacement, as the caller may know it.

    `subject` was preempted, `preemptor` is for whom; amounts are in base units, cpu in thousandths.
    `lost_device_seconds`: since the last checkpoint or the start; `times`: how often its lineage
    was displaced within `window`; `spared_by`: what would have spared it; `back_at`: when it
    ran again. `record`: the Preemption, the last one of its demand, `plan`: its plan's id.
    `saves_until`: when the victim is evicted at the latest, where it was notified and may save
    until then; `saved` of the `requested` pods have saved.
    `notice_withheld`: why it got no notice although it requested it.
    `stages`: the planes that see the demand through, in order, where several decide.
    """

    at: str
    plane: str
    rule: str
    subject: str = ""
    preemptor: str = ""
    victims: int = 1
    amounts: dict[str, int] = {}
    outcome: str = ""
    lost_device_seconds: int | None = None
    times: int = 0
    window: str = ""
    spared_by: str = ""
    back_at: str = ""
    record: str = ""
    plan: str = ""
    stages: str = ""
    saves_until: str = ""
    saved: int = 0
    requested: int = 0
    notice_withheld: str = ""


class Answer(_Struct, frozen=True, kw_only=True):
    """What became of one object.

    Attributes:
        limits: what the caller may not list, and what that means for the figures.
        waiting: where it waits.
        displaced: how it was preempted, the newest first.
        displaced_others: who was preempted for it, the newest first.
        story: lines of a record that was decided again, for a Preemption alone.
    """

    version: int
    subject: Subject
    state: State
    verdict: str
    as_of: str
    limits: list[str] = []
    evidence: list[Fact] = []
    next_steps: list[Step] = []
    certainty: list[str] = []
    waiting: Waiting | None = None
    displaced: list[Displaced] = []
    displaced_others: list[Displaced] = []
    story: list[str] = []


def schema() -> dict[str, object]:
    """Return the JSON schema of an answer."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Answer of reprieve explain",
        **_cleaned(msgspec.json.schema(Answer)),
    }


def _cleaned(part: Any) -> Any:
    """Return a schema whose descriptions are not indented, as of older Pythons."""
    if isinstance(part, dict):
        return {
            name: inspect.cleandoc(value)
            if name == "description" and isinstance(value, str)
            else _cleaned(value)
            for name, value in part.items()
        }
    return [_cleaned(each) for each in part] if isinstance(part, list) else part
