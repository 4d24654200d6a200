"""Names by number, packed: what comes out is what went in, however names collide or look."""

from __future__ import annotations

from array import array
from random import Random
from uuid import UUID

import pytest

from reprieve.engine.disruptions import texts
from reprieve.engine.disruptions.texts import Names, Texts

UID = "3f2a9c40-0d1e-4b7a-9a55-0123456789ab"


def many(count: int) -> list[str]:
    random = Random(7)
    uids = (str(UUID(int=random.getrandbits(128))) for _ in range(count))
    return [f"owner/{uid}" if number % 2 else f"t-{number}" for number, uid in enumerate(uids)]


@pytest.mark.parametrize("bits", [32, 7, 0])
def test_each_name_has_one_number_however_many_hashes_are_the_same(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "_HASH", 2**bits - 1)
    given, names = many(1_500 if bits < 32 else 20_000), Names()
    assert [names.find(name) for name in given[:10]] == [-1] * 10
    assert [names.number(name) for name in given] == list(range(len(given)))
    names.lately.clear()
    shuffled = list(enumerate(given))
    Random(8).shuffle(shuffled)
    assert all(names.number(name) == names.find(name) == number for number, name in shuffled)
    assert [names[number] for number in range(len(given))] == given
    assert names.find("nobody") == -1 and len(names) == len(given)


def test_a_copy_of_some_names_finds_those_alone() -> None:
    given, names, some = many(3_000), Names(), Names()
    for name in given:
        names.number(name)
    for there, number in enumerate(range(0, 3_000, 3)):
        assert some.copy(names, number) == there
    assert [some.find(name) for name in given[:4]] == [0, -1, -1, 1]
    assert some.number("one more") == 1_000 == some.find("one more")


def test_slots_hold_every_number_at_its_place_or_behind_taken_ones_alone() -> None:
    random = Random(9)
    hashes = array("I", [random.getrandbits(8) for _ in range(600)])
    slots = texts._placed(hashes, 1_024)
    assert sorted(number for number in slots if number) == list(range(1, 601))
    for number, hashed in enumerate(hashes, 1):
        place = hashed & 1_023
        while slots[place] != number:
            assert slots[place], "a look-up would end here"
            place = (place + 1) & 1_023


@pytest.mark.parametrize(
    "text",
    [
        "",
        UID,
        f"owner/{UID}",
        f"owner/{UID.upper()}",
        UID.replace("-", ""),
        UID[:-1] + " ",
        UID.replace("0d1e-", "0d1e "),
        f"{UID[:8]}{UID[9:13]}--{UID[13:]}",
        "-" * 36,
        f"größe/{UID}",
        "\ud800" + UID,
        UID + "\udfff",
        "\x01" + "a" * 16,
    ],
)
def test_a_text_comes_back_as_it_was(text: str) -> None:
    held = Texts()
    held.append("before")
    held.append(text)
    held.append("after")
    assert [held[number] for number in range(3)] == ["before", text, "after"]


def test_a_uid_takes_sixteen_bytes() -> None:
    assert len(texts.packed(f"owner/{UID}")) == 1 + len("owner/") + 16
