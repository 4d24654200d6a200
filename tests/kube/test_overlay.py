"""What was written counts until the watch shows it, whichever of the two comes first."""

from __future__ import annotations

from reprieve.kube.overlay import Unseen, Write


def test_a_write_counts_until_its_version_or_a_later_one_is_seen() -> None:
    unseen: Unseen[str, str] = Unseen()
    unseen.wrote("one", 5, "ours")
    assert unseen.over("one", 4) == "ours"
    assert (unseen.get("one"), len(unseen), dict(unseen)) == ("ours", 1, {"one": "ours"})
    assert unseen.seen("one", 4) is None
    assert unseen.seen("one", 5) == Write(5, "ours")
    assert unseen.seen("one", 6) is None
    unseen.wrote("one", 7, "ours")
    assert unseen.over("one", 8) is None
    assert (unseen.get("one"), len(unseen), dict(unseen)) == (None, 0, {})


def test_of_two_answers_the_later_version_counts_in_whatever_order_they_come() -> None:
    unseen: Unseen[str, str] = Unseen()
    unseen.wrote("one", 7, "second")
    unseen.wrote("one", 6, "first")
    assert unseen.seen("one", 6) is None
    assert unseen.get("one") == "second"


def test_what_is_gone_is_forgotten() -> None:
    unseen: Unseen[str, str] = Unseen()
    unseen.wrote("one", 7, "ours")
    unseen.forget("one")
    unseen.forget("one")
    assert unseen.over("one", 0) is None
