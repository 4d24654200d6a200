"""Who is asked about by kind is held as if everybody had been asked, whatever happens between.

Candidates come, change and go, displacements are counted and taken back, budgets change and windows
pass. After each step three preemptors ask, once about those in doubt and once about all.
"""

from __future__ import annotations

from random import Random

import pytest

from kubeworld.units.durations import SECOND
from kubeworld.units.instants import Nanos
from reprieve.engine.harm_budgets.accounts import HarmAccounts
from reprieve.engine.harm_budgets.asking import Asking, Evaluated
from reprieve.engine.harm_budgets.budget import Harm, HarmSide
from reprieve.engine.harm_budgets.kinds import NEVER, Kind, Kinds
from reprieve.engine.lost_work import lost_device_seconds
from reprieve.units.ids import Uid
from reprieve.units.references import Reference
from tests.engine.harm_budgets.test_second_reading import LABELS, budget_of, random_budget

PLANE = "scheduling"
ASKING = (HarmSide("a", "", 5), HarmSide("c", "", 9), None)


class _Cluster:
    """One cluster: candidates with tenant, priority, start and devices."""

    def __init__(self, random: Random) -> None:
        self.random, self.now = random, 1_000_000
        self.accounts = HarmAccounts()
        self.accounts.labels = lambda tenant: LABELS[tenant]
        self.kinds = Kinds()
        self.asking = Asking(self.accounts, PLANE)
        self.there: dict[str, tuple[str, int, int, int]] = {}
        self.counted: list[Harm] = []
        self.doubted = self.held = 0
        self.adopt()

    def adopt(self) -> None:
        """Go by other budgets."""
        found = [random_budget(self.random) for _ in range(self.random.randint(1, 3))]
        self.accounts.adopt({str(n): budget_of(str(n), each) for n, each in enumerate(found)})

    def step(self) -> None:
        """Let something happen."""
        random = self.random
        self.now += random.choice((0, 1, 60, 700, 2_000, 4_000))
        uid = f"pod-{random.randrange(12)}"
        match random.randrange(10):
            case 0 | 1 | 2 | 3:
                start = random.choice((NEVER, self.now, self.now - random.randrange(5_000)))
                row = random.choice("abc"), random.choice((1, 4, 6)), start, random.randrange(3)
                self.there[uid] = row
                self.kinds.apply(uid, *row)
            case 4 | 5:
                self.there.pop(uid, None)
                self.kinds.remove(uid)
            case 6 | 7 | 8:
                self.count()
            case _:
                if self.counted and random.random() < 0.5:
                    self.accounts.undo(self.counted.pop())
                elif random.random() < 0.3:
                    self.adopt()

    def count(self) -> None:
        """Have somebody displaced."""
        random = self.random
        victim = HarmSide(random.choice("abc"), "x", random.choice((1, 4, 6)), "owner/1")
        lost = random.choice((0, 10, 1_800, 4_000))
        harm = Harm(Nanos(self.now * SECOND), PLANE, victim, random.choice(ASKING), lost, "rule")
        self.accounts.record(harm)
        self.counted.append(harm)

    def lost(self, uid: str) -> int:
        """Return what a candidate loses now."""
        _, _, start, devices = self.there[uid]
        return lost_device_seconds(None if start == NEVER else start, 0, devices, self.now)

    def check(self) -> None:
        """Ask about those in doubt, and about all."""
        now = Nanos(self.now * SECOND)
        for number, asks in enumerate(ASKING):
            key = str(number)
            doubtful = self.asking.doubtful(key, asks, now, self.kinds)
            roots = [
                Reference("v1", "Pod", row[0], uid, Uid(uid)) for uid, row in self.there.items()
            ]
            of_roots = self.asking.in_doubt(
                key, asks, now, Evaluated(roots), lambda root: self.lost(root.uid)
            )
            expected = self.naive(asks, now)
            assert self.all_held(key, asks, now, [uid for uid, _, _ in doubtful]) == expected
            assert self.all_held(key, asks, now, [str(root.uid) for root in of_roots]) == expected
            self.doubted += len(doubtful)
            self.held += len(expected)

    def all_held(
        self, key: str, asks: HarmSide | None, now: Nanos, uids: list[str]
    ) -> dict[str, tuple[Nanos, str]]:
        """Return who of these is held, until when and by which budget."""
        rows = [(uid, *self.there[uid][:2]) for uid in uids]
        found = self.asking.held(key, asks, now, rows, self.lost, lambda uid: "owner/1")
        return {uid: (hold.until, hold.budget) for uid, hold in found.items()}

    def naive(self, asks: HarmSide | None, now: Nanos) -> dict[str, tuple[Nanos, str]]:
        """Return who is held of all, each asked about by itself."""
        found: dict[str, tuple[Nanos, str]] = {}
        for uid, (tenant, priority, _, _) in self.there.items():
            side = HarmSide(tenant, "", priority, "owner/1")
            held = self.accounts.held(Harm(now, PLANE, side, asks, self.lost(uid)))
            if held is not None:
                found[uid] = held
        return found


def _played(seeds: int) -> tuple[int, int]:
    doubted = held = 0
    for seed in range(seeds):
        cluster = _Cluster(Random(seed))
        for _ in range(25):
            cluster.step()
            cluster.check()
        doubted, held = doubted + cluster.doubted, held + cluster.held
    return doubted, held


def test_who_is_in_doubt_is_all_who_are_held() -> None:
    doubted, held = _played(60)
    assert held > 500
    assert doubted >= held


def test_a_bound_that_is_too_low_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Kind.fits_until
    monkeypatch.setattr(Kind, "fits_until", lambda kind, room: right(kind, room) + 4_000)
    with pytest.raises(AssertionError):
        _played(60)


def test_changes_of_candidates_that_are_not_seen_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Kinds, "changed_since", lambda kinds, version: [])
    with pytest.raises(AssertionError):
        _played(60)
