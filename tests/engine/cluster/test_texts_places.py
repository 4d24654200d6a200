"""Places of texts in a column are those of a look at each text."""

from __future__ import annotations

from random import Random

from reprieve.engine.cluster.texts import CHUNK, TextColumn, places_of


def test_places_are_found_in_all_chunks_and_of_equal_texts_the_first() -> None:
    random = Random("places")
    column: TextColumn[str] = TextColumn("")
    texts = [f"text-{random.randrange(3 * CHUNK)}" for _ in range(3 * CHUNK + 5)]
    for slot, text in enumerate(texts):
        column[slot] = text
    wanted = frozenset([*random.sample(texts, 40), texts[-1], texts[CHUNK], "none"])
    expected: dict[str, int] = {}
    for slot, text in enumerate(texts):
        if text in wanted:
            expected.setdefault(text, slot)
    assert places_of(column.copy(), wanted) == expected == places_of(texts, wanted)
    assert places_of(column.copy(), frozenset()) == {} == places_of([], wanted)
