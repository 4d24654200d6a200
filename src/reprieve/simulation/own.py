"""Policies of one's own: a class with `admit` and `order`, and what it is shown.

    class LeastLost:
        def admit(self, heads):
            return sorted(heads, key=lambda head: (-head.priority, head.waiting_since))

        def order(self, candidates):
            lower = (c for c in candidates if c.priority < candidates.preemptor.priority)
            return sorted(lower, key=lambda c: c.lost)

`admit` is shown the job that waits longest of each tenant, priority and width, and returns those
that are to be considered, in that order. `order` is shown the running jobs when one of them does
not fit, and returns those that may be preempted for it, in the order in which they are chosen. The
rest is not up to it (`own_decider`): no work is displaced unless the preemptor fits afterwards,
every job that is not needed is reprieved, and the capacity that comes free is the preemptor's.

A study names it as `own: FILE.py:CLASS`, beside the study file, or by the name of an entry point
`reprieve.policies` of an installed package.
"""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Protocol

from reprieve.units.errors import ReprieveError, UsageError

__all__ = [
    "ENTRY_POINTS",
    "Candidate",
    "Candidates",
    "Head",
    "OwnFault",
    "OwnPolicy",
    "load_own",
    "raised",
]

ENTRY_POINTS: Final = "reprieve.policies"


@dataclass(frozen=True, slots=True)
class Head:
    """A job that waits; times in seconds. `displaced` is how often it was preempted already.

    `within_own` states that its tenant would use no more than its own quota with it.
    """

    id: str
    tenant: str
    priority: int
    devices: int
    waiting_since: float
    displaced: int
    within_own: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running job; `lost` are the device-seconds that displacing it now would undo.

    `borrows` states that its tenant uses more than its own quota.
    """

    id: str
    tenant: str
    priority: int
    devices: int
    running_since: float
    displaced: int
    lost: float
    borrows: bool


@dataclass(frozen=True, slots=True)
class Candidates:
    """The running jobs in the order of their starts, for whom, and when (seconds)."""

    preemptor: Head
    now: float
    running: tuple[Candidate, ...]

    def __iter__(self) -> Iterator[Candidate]:
        """Yield the running jobs."""
        return iter(self.running)


class OwnPolicy(Protocol):
    """What such a class has; it is made anew for each run, without arguments."""

    def admit(self, heads: Sequence[Head]) -> Sequence[Head]:
        """Return those to be considered, in that order."""
        ...

    def order(self, candidates: Candidates) -> Sequence[Candidate]:
        """Return those that may be preempted, in the order of preemption."""
        ...


class OwnFault(ReprieveError):
    """A policy of one's own raised, or returned what it was not shown."""


def raised(error: BaseException) -> str:
    """Return what a policy raised, and where: the innermost line, which is mostly the policy's."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if len(frames) > 1 else ""
    return f"{error!r}{where}"


def load_own(name: str, beside: Path, where: str) -> Any:
    """Return the class that a study names.

    Raises:
        UsageError: there is none of that name, or it has not what a policy has.
    """
    accepted = "FILE.py:CLASS beside the study, or an entry point of reprieve.policies"
    file, _, attribute = name.rpartition(":")
    if file:
        found = _from_file(beside / file, attribute, where, accepted)
    else:
        offered = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
        if name not in offered:
            known = f", which are {', '.join(sorted(offered))}" if offered else ", of which none is"
            raise UsageError(f"{where}: {name!r}; accepted: {accepted}{known} installed")
        try:
            found = offered[name].load()
        except (Exception, SystemExit) as error:
            raise UsageError(f"{where}: {name!r} cannot be loaded: {error!r}") from error
    for method in ("admit", "order"):
        if not callable(getattr(found, method, None)):
            raise UsageError(
                f"{where}: {name!r} has no {method}; accepted: a class with admit and order"
            )
    return found


def _from_file(path: Path, attribute: str, where: str, accepted: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"reprieve_policy_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"{where}: there is no {path}; accepted: {accepted}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{where}: {path} cannot be loaded: {error!r}") from error
    if not hasattr(module, attribute):
        raise UsageError(
            f"{where}: there is no {attribute or 'class'} in {path}; accepted: {accepted}"
        )
    return getattr(module, attribute)
