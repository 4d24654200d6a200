"""Objects of one kind as columns: what they have in common once, what differs as lists of values.

The JSON of an object is parted at its quotes. Objects with the same keys, numbers and brackets are
of one shape; what differs between them is a column for each place. Of a column with repeated values
each value stands once, with the numbers of the rows that have it; one that is like an earlier one
names it. Tens of thousands of pods of a few templates get small like this, and the file stays JSON
to be looked at. Source: of the form, what `reprieve snapshot` is asked for: 50,000 pods in 1.5 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

__all__ = ["Column", "Shape", "objects_of", "shapes_of"]


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values of one place.

    Of each row one; with `rows` each once, and `rows` has the place of each row's value. `like`:
    number of an earlier column with the same `rows`, and with the same values where none are
    given; -1 for none. Values without spaces stand in one text, others in a list.
    """

    values: str | list[str] = ""
    rows: list[int] | None = None
    like: int = -1


class Shape(msgspec.Struct, frozen=True):
    """So many objects with the same texts around their columns."""

    count: int
    texts: list[str]
    columns: list[Column]


def shapes_of(objects: Iterable[bytes]) -> tuple[list[Shape], list[bytes]]:
    """Return the objects by shape, and those that have to stand as they are."""
    found: dict[tuple[str, ...], list[list[str]]] = {}
    others = []
    for body in objects:
        if b"\\" in body:
            others.append(body)  # a quote may be part of a text
            continue
        parts = body.decode().split('"')
        found.setdefault(tuple(parts[::2]), []).append(parts[1::2])
    return [_shape(around, rows) for around, rows in found.items()], others


def objects_of(shapes: Iterable[Shape]) -> Iterator[bytes]:
    """Yield the objects again, shape by shape.

    Raises:
        LookupError: a number leads nowhere.
        TypeError: there are not as many values as places.
        ValueError: there are not as many values as objects.
    """
    for shape in shapes:
        form = "%s".join(text.replace("%", "%%") for text in shape.texts)
        if not shape.columns:
            yield from (form.replace("%%", "%").encode() for _ in range(shape.count))
            continue
        for row in zip(*_values(shape.columns), strict=True):
            yield (form % row).encode()


def _shape(around: Sequence[str], rows: Sequence[Sequence[str]]) -> Shape:
    texts = [around[0]]
    columns: list[Column] = []
    # By what rows say, and by whole columns: the number of the first that is like that.
    known: dict[tuple[int, ...], int] = {}
    whole: dict[tuple[str, ...], int] = {}
    for column, after in zip(zip(*rows, strict=True), around[1:], strict=True):
        distinct = dict.fromkeys(column)
        if len(distinct) == 1:
            texts[-1] += f'"{column[0]}"{after}'
            continue
        texts[-1] += '"'
        texts.append(f'"{after}')
        columns.append(_column(column, list(distinct), len(columns), known, whole))
    return Shape(len(rows), texts, columns)


def _column(
    column: tuple[str, ...],
    distinct: list[str],
    number: int,
    known: dict[tuple[int, ...], int],
    whole: dict[tuple[str, ...], int],
) -> Column:
    same = whole.setdefault(column, number)
    if same != number:
        return Column(like=same)
    if 2 * len(distinct) > len(column):
        return Column(_joined(column))
    places = {value: place for place, value in enumerate(distinct)}
    rows = tuple(map(places.__getitem__, column))
    like = known.setdefault(rows, number)
    values = _joined(distinct)
    return Column(values, list(rows)) if like == number else Column(values, like=like)


def _joined(values: Sequence[str]) -> str | list[str]:
    text = " ".join(values)
    return text if text.count(" ") == len(values) - 1 and all(values) else list(values)


def _values(columns: Sequence[Column]) -> Iterator[list[str]]:
    rows: list[list[int] | None] = []
    made: list[list[str]] = []
    for column in columns:
        values = column.values.split(" ") if isinstance(column.values, str) else column.values
        at = column.rows if column.like < 0 else rows[column.like]
        if column.like >= 0 and not column.values:
            values = made[column.like]
        elif at is not None:
            values = [values[place] for place in at]
        rows.append(at)
        made.append(values)
        yield values
