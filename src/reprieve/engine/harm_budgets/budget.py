"""A HarmBudget as decisions read it, and one displacement as budgets count it.

A budget counts one side of a displacement: the victim (`Suffered`, `Work`, `Cluster`) or the
preemptor (`Caused`). Its selector chooses which sides it applies to. `per` divides it into accounts
of equal limits: one for each tenant, ClusterQueue or lineage, or one for all. Scope `Work` has an
account for each lineage, scope `Cluster` one for all.

A displacement counts for the length of the window, or with a schedule until the end of the last
scheduled window that it falls into. The limits compare whole device seconds; a GPU-hour is 3,600 of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kubeworld.units.durations import HOUR
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.schedule import Schedule
from reprieve.engine.selectors import selects

__all__ = ["ALL_PLANES", "Expression", "Harm", "HarmBudget", "HarmSide", "Per", "Scope", "Selector"]

ALL_PLANES: Final = frozenset({"idle", "quota", "scheduling"})


class Scope(StrEnum):
    """Which side of a displacement a budget counts."""

    SUFFERED = "Suffered"
    CAUSED = "Caused"
    WORK = "Work"
    CLUSTER = "Cluster"


class Per(StrEnum):
    """What has an account of its own in a budget."""

    TENANT = "Tenant"
    QUEUE = "ClusterQueue"
    WORK = "Work"
    ALL = "All"


@dataclass(frozen=True, slots=True)
class HarmSide:
    """The victim or the preemptor; `queue` is its ClusterQueue, empty where none is known.

    `priority`: None where none is known.
    """

    tenant: str
    queue: str = ""
    priority: int | None = None
    lineage: str = ""


@dataclass(frozen=True, slots=True)
class Harm:
    """One unit that is displaced, or would be.

    `uids`: the objects of the unit. `reason`: why it was chosen. `saved_device_seconds`: what a
    notice saved of what the decision expected to be lost. `units` is 0, and `waited_seconds` how
    long it was away, for one that was counted before and runs again.
    """

    at: Nanos
    plane: str
    victim: HarmSide
    preemptor: HarmSide | None = None
    lost_device_seconds: int = 0
    reason: str = ""
    uids: frozenset[str] = frozenset()
    saved_device_seconds: int = 0
    waited_seconds: int = 0
    units: int = 1

    def in_truth(self, lost: int) -> Harm:
        """Return it for a unit that lost so many device seconds, since it saved the rest."""
        saved = max(0, self.lost_device_seconds - lost)
        return replace(self, lost_device_seconds=lost, saved_device_seconds=saved)


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on labels of a namespace."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selector:
    """To which sides a budget applies; what is None selects all."""

    namespaces: tuple[Expression, ...] | None = None
    queues: frozenset[str] | None = None
    priority_below: int | None = None

    def matches(self, side: HarmSide, labels: Mapping[str, str]) -> bool:
        """Return whether the side is selected; `labels` are those of its namespace."""
        if self.priority_below is not None and (
            side.priority is None or side.priority >= self.priority_below
        ):
            return False
        if self.queues is not None and side.queue not in self.queues:
            return False
        return self.namespaces is None or selects(self.namespaces, labels)


@dataclass(frozen=True, slots=True)
class HarmBudget:
    """One budget; durations in nanoseconds, limits None where there is none.

    `window`: how long a displacement counts, or with a `schedule` how long each window lasts.
    `holds`: whether an exhausted budget spares candidates; otherwise it is reported only.
    `priority_from`: preemptors from this priority on are exempt.
    """

    name: str
    scope: Scope = Scope.SUFFERED
    selector: Selector = Selector()
    per: Per = Per.TENANT
    window: int = 24 * HOUR
    displacements: int | None = None
    lost_device_seconds: int | None = None
    planes: frozenset[str] = ALL_PLANES
    holds: bool = True
    priority_from: int | None = None
    nominal_reclaim_after: int = HOUR
    schedule: Schedule | None = None

    def side_of(self, harm: Harm) -> HarmSide | None:
        """Return the side that is counted."""
        return harm.preemptor if self.scope is Scope.CAUSED else harm.victim

    @property
    def of_lineages(self) -> bool:
        """Whether each lineage has an account."""
        return self.scope is Scope.WORK or (
            self.per is Per.WORK and self.scope is not Scope.CLUSTER
        )

    @property
    def of_tenants(self) -> bool:
        """Whether each tenant that is displaced has an account of its own."""
        return self.scope is Scope.SUFFERED and self.per is Per.TENANT

    def account(self, side: HarmSide) -> str:
        """Return the name of the account of a side.

        That of a lineage begins with its tenant, since any user may name any owner.
        """
        if self.of_lineages:
            return f"{side.tenant}/{side.lineage}"
        if self.scope is Scope.CLUSTER or self.per is Per.ALL:
            return ""
        return side.queue if self.per is Per.QUEUE else side.tenant

    def leaves(self, at: Nanos) -> Nanos:
        """Return until when a displacement counts; `at` itself where it does not."""
        if self.schedule is None:
            return Nanos(at + self.window)
        began = self.schedule.began(at, self.window)
        return at if began is None else Nanos(began + self.window)

    def allows(self, displacements: int, lost_device_seconds: int) -> bool:
        """Return whether an account may reach these sums."""
        most, lost = self.displacements, self.lost_device_seconds
        return (most is None or displacements <= most) and (
            lost is None or lost_device_seconds <= lost
        )
