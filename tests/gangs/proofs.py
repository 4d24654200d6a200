"""What the proof says of a job's preemption, as if it were the end of a gang's cycle."""

from __future__ import annotations

from reprieve.engine.cluster.snapshot import Snapshot
from reprieve.engine.placement.profile import Policy
from reprieve.engine.plan_faults import PlanFault
from reprieve.engine.scheduling.gangs.cycle import _preempted
from reprieve.engine.scheduling.gangs.job import Job, JobPolicy, JobPreemption, VictimGangs
from reprieve.engine.scheduling.outcome import GangCycle, Member, Unit
from reprieve.engine.scheduling.proofs.proof import faults_of

__all__ = ["faults_of_job"]


def faults_of_job(
    snapshot: Snapshot,
    policy: Policy,
    job: Job,
    found: JobPreemption,
    victim_gangs: VictimGangs = VictimGangs.ALL,
    jobs: JobPolicy | None = None,
) -> tuple[PlanFault, ...]:
    """Return the faults of a preemption that has victims.

    Members that wait in Permit have their nodes already, and are in the snapshot.
    """
    members = {each.row.uid: Member(each.row.uid) for each in job.pending}
    cycle = GangCycle(job.key, job.trigger.row.uid, found)
    unit = Unit(tuple(members))
    attempt = _preempted(snapshot, unit, job.pending, (), members, found, cycle)
    return faults_of(snapshot, policy, attempt, victim_gangs=victim_gangs, jobs=jobs)
