"""Deliberate errors in the engine are noticed, each by the tests that are about it.

Every error is run in a process of its own (`tests.quota.mutant`). What the random scenes cannot
show is run against published cases, and skipped where those are absent.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.quota.mutant import VECTORS

ROOT = Path(__file__).parents[2]


class Mutation(NamedTuple):
    name: str
    module: str
    old: str
    new: str
    check: str


MUTATIONS = [
    Mutation(
        "reservation times the other way round",
        "holdings.holders",
        "- 2 * holder.since - holder.idle,",
        "+ 2 * holder.since - holder.idle,",
        "targets",
    ),
    Mutation(
        "nothing is filled back",
        "targets.classical",
        "len(targets) - 2, -1, -1",
        "-1, -1, -1",
        "targets",
    ),
    Mutation(
        "the last target is filled back too",
        "targets.classical",
        "len(targets) - 2, -1, -1",
        "len(targets) - 1, -1, -1",
        "targets",
    ),
    Mutation(
        "candidates are not looked at again before they are taken",
        "targets.classical",
        "if not _all_over(",
        "if False and not _all_over(",
        "targets",
    ),
    Mutation(
        "the threshold of borrowWithinCohort is ignored",
        "targets.classical",
        "limit if threshold is None else min(limit, threshold + 1)",
        "limit",
        "targets",
    ),
    Mutation(
        "no advantage of the hierarchy",
        "targets.classical",
        "advantage, below = advantage or ok, top",
        "advantage, below = False, top",
        "targets",
    ),
    Mutation(
        "under nominal is not strict",
        "targets.classical",
        "tree.subtree[column][queue] > snapshot.usage[column][queue] for",
        "tree.subtree[column][queue] >= snapshot.usage[column][queue] for",
        "targets",
    ),
    Mutation(
        "the rule for preemptors within nominal is off",
        "targets.fair",
        "if queue == self.own or within_nominal:",
        "if queue == self.own:",
        "targets",
    ),
    Mutation(
        "a queue is not left after a success",
        "targets.fair",
        "if passed:\n                return self._designate(",
        "if passed and not self._designate(row, Reason.IN_COHORT_FAIR_SHARING):\n"
        "                continue\n            if passed:\n"
        "                return True or self._designate(",
        "targets",
    ),
    Mutation(
        "a ClusterQueue wins a tie against a cohort",
        "targets.fair",
        "child_share >= queue_share",
        "child_share > queue_share",
        "targets",
    ),
    Mutation(
        "the second strategy does not ask for its inequality",
        "targets.fair",
        "if passed and self._designate(row",
        "if self._designate(row",
        "targets",
    ),
    Mutation(
        "shares of zero weight compare as all others",
        "holdings.shares",
        "if self.ratio and not self.weight:",
        "if False:",
        "targets",
    ),
    Mutation(
        "shares divide before they multiply",
        "holdings.shares",
        "* 1000.0 / capacity",
        "/ capacity * 1000.0",
        "figures",
    ),
    Mutation(
        "lending limits are ignored",
        "holdings.tree",
        "local = max(0, minus(subtree, quota.lending_limit))",
        "local = 0",
        "figures",
    ),
    Mutation(
        "usage that a node keeps for itself bubbles up",
        "holdings.tree",
        "            amount -= left\n",
        "            pass\n",
        "figures",
    ),
    Mutation(
        "a release forgets the parents",
        "holdings.tree",
        "        amount = min(amount, stored)\n",
        "        return\n",
        "rebuild",
    ),
    Mutation(
        "snapshots share their lists with later changes",
        "holdings.state",
        "        self._own.clear()\n",
        "",
        "rebuild",
    ),
    Mutation(
        "who takes the place of a slice is nominated as before",
        "nominated",
        "and not entry.workload.replaces ",
        "",
        "slices",
    ),
    Mutation(
        "what an entry takes is not counted for those after it",
        "cycle",
        "self.snapshot.add_usage(entry.queue, assignment.usage.items())",
        "pass",
        "flows",
    ),
    Mutation(
        "borrowing limits are ignored",
        "holdings.tree",
        "            left = min(left, cap[node]) + own if own >= 0 else min(left, cap[node] + own)",
        "            left = left + own",
        "flows",
    ),
    Mutation(
        "what does not fit now is said never to fit",
        "assigning.assigner",
        "most = tree.potential[column][queue]",
        "most = max(0, available(tree, column, usage, tree.path[queue]))",
        "flows",
    ),
    # What follows gives plans that their own proof refuses.
    Mutation(
        "a plan keeps victims that are not needed",
        "targets.classical",
        "len(targets) - 2, -1, -1",
        "-1, -1, -1",
        "proof",
    ),
    Mutation(
        "one victim too few is enough, as more is free than there is",
        "holdings.tree",
        "    return left\n",
        "    return left + 1\n",
        "proof",
    ),
    Mutation(
        "who takes the place of one that is put back is named twice",
        "targets.classical",
        "            targets.pop()\n",
        "            pass\n",
        "proof",
    ),
    Mutation(
        "those with another flavor are preempted too",
        "targets.borrowers",
        "if not need.isdisjoint(columns):",
        "if True:",
        "proof",
    ),
    Mutation(
        "victims by all that is asked, not by what is missing",
        "nominations",
        "found.usage, found.need, asked)",
        "found.usage, frozenset(found.usage), asked)",
        "proof",
    ),
    Mutation(
        "the own queue's policy is read as that of others",
        "targets.classical",
        "policy = rules.within_cluster_queue",
        "policy = rules.reclaim_within_cohort",
        "proof",
    ),
    Mutation(
        "other queues' policy is read as the own one's",
        "targets.fair",
        "reclaim = rules.reclaim_within_cohort",
        "reclaim = rules.within_cluster_queue",
        "proof",
    ),
    Mutation(
        "equal priorities are preempted, whoever is newer",
        "targets.candidates",
        "row for row in equal if who.timestamp < row[4].timestamp",
        "row for row in equal",
        "proof",
    ),
    Mutation(
        "queues give on when they do not borrow any more",
        "targets.classical",
        "if not _all_over(",
        "if False and not _all_over(",
        "proof",
    ),
    Mutation(
        "who may not be taken while borrowing is taken",
        "targets.classical",
        "if not borrow or self.limit is None:\n            return len(rows)",
        "if True:\n            return len(rows)",
        "proof",
    ),
    Mutation(
        "priorities beyond the threshold are preempted while borrowing",
        "targets.classical",
        "limit if threshold is None else min(limit, threshold + 1)",
        "limit",
        "proof",
    ),
    Mutation(
        "the hierarchy gives no advantage",
        "targets.classical",
        "advantage, below = advantage or ok, top",
        "advantage, below = False, top",
        "proof",
    ),
    Mutation(
        "within its nominal quota a preemptor compares shares",
        "targets.fair",
        "if queue == self.own or within_nominal:",
        "if queue == self.own:",
        "proof",
    ),
    Mutation(
        "the first inequality is not asked for",
        "targets.fair",
        "passed = new <= self.shares.without(theirs, path, held)",
        "passed = True",
        "proof",
    ),
    Mutation(
        "the second inequality is not asked for",
        "targets.fair",
        "if passed and self._designate(row",
        "if self._designate(row",
        "proof",
    ),
    Mutation(
        "lending limits are overlooked",
        "holdings.tree",
        "local = max(0, minus(subtree, quota.lending_limit))",
        "local = 0",
        "proof",
    ),
    Mutation(
        "borrowing limits are overlooked",
        "holdings.tree",
        "            left = min(left, cap[node]) + own if own >= 0 else min(left, cap[node] + own)",
        "            left = left + own",
        "proof",
    ),
    Mutation(
        "quotas of cohorts count twice",
        "holdings.tree",
        "exact[column][node] = plus(exact[column][node], nominal)",
        "exact[column][node] = plus(plus(exact[column][node], nominal), nominal)",
        "proof",
    ),
    Mutation(
        "victims of one plan are those of the next",
        "room",
        "return any(target.holder.key in self._designated for target in entry.targets)",
        "return False",
        "proof",
    ),
    Mutation(
        "it is not asked whether there is still room at its turn",
        "room",
        "return all(amount <= free[column] for column, amount in entry.counted.items())",
        "return bool(free) or True",
        "proof",
    ),
    Mutation(
        "all pods of a pod set ask for as much as one",
        "assigning.requests",
        "resource: min(UNLIMITED, max(0, amount) * count)",
        "resource: min(UNLIMITED, max(0, amount))",
        "demand",
    ),
    Mutation(
        "of pod sets with one flavor only the last counts",
        "assigning.assigner",
        "usage[column] = plus(usage.get(column, 0), each.amounts[resource])",
        "usage[column] = each.amounts[resource]",
        "demand",
    ),
    Mutation(
        "equal candidates go by name",
        "holdings.holders",
        "holder.workload.uid,\n        holder.key,",
        "holder.key,\n        holder.workload.uid,",
        "ties",
    ),
    Mutation(
        "candidates are looked for by all that is asked, not by what is missing",
        "nominations",
        "found.usage, found.need, asked)",
        "found.usage, frozenset(found.usage), asked)",
        "plans",
    ),
    Mutation(
        "who waits is decided about as it came",
        "waiting.pending",
        "insort(alike.queued, row)",
        "alike.queued.append(row)",
        "history",
    ),
    Mutation(
        "the height is that of a flag",
        "holdings.tree",
        "self.height[child] + 1 for child",
        "1 for child",
        "vectors:Generated_hierarchical.json",
    ),
    Mutation(
        "no recomputation where targets overlap",
        "cycle",
        "if overlap and",
        "if False and",
        "vectors:Generated_scheduler_fair.json",
    ),
    Mutation(
        "no capacity is reserved for entries without targets",
        "cycle",
        "            self.snapshot.add_usage(entry.queue, kept.items())",
        "            pass",
        "vectors:Generated_scheduler_classical.json",
    ),
    Mutation(
        "the order of a cycle asks whether, not how far, an entry borrows",
        "tournament",
        "(_preemptor(entry, settings), entry.level,",
        "(_preemptor(entry, settings), entry.level > 0,",
        "vectors:TestSchedule.json",
    ),
    Mutation(
        "a skipped head is set aside",
        "heads",
        "        RequeueReason.FAILED_AFTER_NOMINATION,\n        RequeueReason.PENDING_PREEMPTION,",
        "        RequeueReason.PENDING_PREEMPTION,",
        "vectors:Generated_scheduler_classical.json",
    ),
    Mutation(
        "workloads of one shape are not set aside together",
        "waiting.queues",
        "if hashing and best_effort and reason in ALIKE:",
        "if False:",
        "vectors:Generated_scheduler_classical.json",
    ),
    Mutation(
        "the oracle does not tell reclamation from preemption",
        "targets.preemption",
        "        return Possibility.RECLAIM, level",
        "        return Possibility.PREEMPT, level",
        "vectors:TestSchedule.json",
    ),
    Mutation(
        "the preference of fungibility is the other way round",
        "assigning.assignment",
        "is Preference.PREEMPTION_OVER_BORROWING:",
        "is not Preference.PREEMPTION_OVER_BORROWING:",
        "vectors:TestIsPreferred.json",
    ),
    Mutation(
        "reduced counts are searched from the wrong end",
        "assigning.partial",
        "            low = middle + 1\n        else:",
        "            high = middle\n        else:",
        "vectors:TestPodSetReducerSearch.json",
    ),
]


def run(module: str, old: str, new: str, check: str) -> dict[str, object]:
    if check.startswith("vectors") and not VECTORS.is_dir():
        pytest.skip("no vectors of the quota plane")
    done = subprocess.run(
        [sys.executable, "-m", "tests.quota.mutant", module, old, new, check],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_deliberate_error_is_noticed(mutation: Mutation) -> None:
    found = run(*mutation[1:])
    assert found["noticed"], f"{mutation.name}: none of {found['cases']} cases noticed"


def test_the_engine_itself_is_not_taken_for_an_error() -> None:
    # The other checks are tests, which pass as they stand.
    assert run("holdings.tree", "UNLIMITED, WIDE", "UNLIMITED, WIDE", "targets")["noticed"] is False
