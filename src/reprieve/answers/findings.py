"""What was found out about a unit, before it is worded; and names instead of uids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kubeworld.units.instants import Nanos
from kubeworld.units.untrusted import Form
from reprieve.answers.decided import Decided
from reprieve.answers.document import Displaced, State
from reprieve.answers.standing import Standing
from reprieve.answers.unit import Unit, name_of, uid_of

__all__ = ["Findings", "named"]

_LONGEST: Final = 32_768
#: As the texts of the quota plane name workloads; who does not know the uid has no use for it.
_BY_UID: Final = Form(r" \((?:Job)?+UID: [^()]*+\)", _LONGEST)
_HEX: Final = "[0-9a-f]"
_UID: Final = Form(rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}", _LONGEST)


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found out about a unit.

    Attributes:
        decided: why it waits, by the plane that decides; None where only its objects were read.
        displaced: how it was preempted, the newest first; `others`: who was preempted for it,
        likewise.
        limits: what the caller may not see.
        unknown: what else is not known.
    """

    unit: Unit
    standing: Standing
    now: Nanos
    decided: Decided | None = None
    displaced: Sequence[Displaced] = ()
    others: Sequence[Displaced] = ()
    limits: Sequence[str] = ()
    unknown: Sequence[str] = ()
    history: bool = False

    @property
    def ignored_queue(self) -> str:
        """The LocalQueue that it names in vain: it would have a Workload if it was queued."""
        started = self.standing.state in (State.RUNS, State.STARTS, State.WAITS)
        return self.unit.ignored_queue if started else ""


def named(unit: Unit, text: str) -> str:
    """Return a text with the names of the unit's parts in the place of their uids."""
    for part in unit.parts:
        uid = uid_of(part)
        if uid and uid in text:
            text = text.replace(uid, name_of(part))
    return _UID.without(_BY_UID.without(text))
