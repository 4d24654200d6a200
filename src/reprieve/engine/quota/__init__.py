"""Whose share it is: quotas, cohorts, preemption and fair sharing, as Kueue decides them.

What a controller holds: `state.Holdings` (who holds quota) and `queues.Queues` (who waits), both
fed by events and configured with one `model.Configuration`. What it runs: `cycle.cycle` or
`cycle.cycles`, whose entries (`entries.Entry`) state what has to be written. From the inside out:

    model, amounts, requests, timing    values
    tree, shares                        the quota tree and dominant resource shares
    state                               holders and snapshots
    candidates, classical, fair         the target search; `preemption` chooses and is the oracle
    assignment, flavors, assigner       flavors for a workload; `partial` lowers its counts
    queues, tournament, entries, cycle  the scheduling cycle
    plans                               an entry as a plan for the executor
    requeuing, usage_based, exposure, figures, protection
                                        backoff and draining, admission fair sharing, which queues
                                        can be hit, status figures, what extends Kueue
"""
