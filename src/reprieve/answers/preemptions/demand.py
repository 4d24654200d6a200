"""The one line about a demand where several planes decide: its owner, what it lacks, its victims.

The owner is what the planes' own table states in the run that decided anew; stages and victims are
those of the records, of which all of one demand are one.
"""

from __future__ import annotations

from reprieve.answers.document import Demand, Displaced
from reprieve.answers.findings import Findings
from reprieve.answers.preemptions.displacements import LEAVING
from reprieve.answers.quantities import amounts
from reprieve.engine.plan import Plane

__all__ = ["demand_of", "demand_text"]


def demand_of(found: Findings) -> Demand | None:
    """Return the text about a demand; None where one plane decides alone."""
    decided = found.decided
    if decided is None or decided.owner is None:
        return None
    diagnosis = decided.diagnosis
    lacks: dict[Plane, dict[str, int]] = {Plane.QUOTA: {}, Plane.SCHEDULING: {}}
    if diagnosis is not None:
        amounts_of = lacks.get(diagnosis.plane, {})
        for (_, resource), amount in diagnosis.deficit.items():
            amounts_of[resource] = amounts_of.get(resource, 0) + amount
    going = _going(found)
    return Demand(
        owner=decided.owner.value,
        planes=[plane.value for plane in decided.planes],
        lacks_quota=lacks[Plane.QUOTA],
        lacks_nodes=lacks[Plane.SCHEDULING],
        evicted="" if going is None else going.subject,
        stages="" if going is None else going.stages,
    )


def demand_text(found: Findings) -> str:
    """Return the line, empty where one plane decides alone."""
    demand = demand_of(found)
    if demand is None:
        return ""
    first = Plane.IDLE.value in demand.planes and demand.owner == Plane.SCHEDULING.value
    said = [f"the {demand.owner} plane decides{', idle work first' if first else ''}"]
    if demand.lacks_quota:
        said.append(f"it lacks {amounts(demand.lacks_quota)} of quota")
    if demand.lacks_nodes:
        said.append(f"it lacks {amounts(demand.lacks_nodes)} on nodes")
    stages = f" ({demand.stages})" if demand.stages else ""
    said.append(
        f"{demand.evicted} is preempted for it{stages}"
        if demand.evicted
        else "no work is preempted for it"
    )
    return "; ".join(said)


def _going(found: Findings) -> Displaced | None:
    return next((each for each in found.others if each.outcome == LEAVING), None)
