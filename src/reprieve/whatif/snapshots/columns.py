"""Objects of one kind as columns: what they have in common once, what differs as lists of values.

The JSON of an object is parted at its quotes. Objects with the same keys, numbers and brackets are
of one shape; what differs between them is a column for each place. Of a column with repeated values
each value stands once, with the numbers of the rows that have it; one that is like an earlier one
names it, and of one that begins as another does only the rest stands. How values stand is defined
by `values`. Tens of thousands of pods of a few templates get small like this, and the file stays
JSON to be looked at. Source: of the form, what `reprieve snapshot` writes: 50,000 pods in 1.5 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

import msgspec

from reprieve.whatif.snapshots.values import Form, written, written_form

__all__ = ["Column", "Shape", "objects_of", "shapes_of"]


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values of one place.

    Of each row one; with `rows` each once, and `rows` has the place of each row's value, as the
    step from that of the row before where they are `rising`. `like`: number of an earlier column
    with the same `rows`, and with the same values where none are given; -1 for none. `after`:
    number of the column with whose value, and `between`, each value begins; -1 for none. `form` and
    `width`: how the values stand, as in `values`.
    """

    values: str | list[str] = ""
    rows: list[int] | None = None
    like: int = -1
    rising: bool = False
    after: int = -1
    between: str = ""
    form: Form = Form.TEXT
    width: int = 0


class Shape(msgspec.Struct, frozen=True):
    """So many objects with the same texts around their columns."""

    count: int
    texts: list[str]
    columns: list[Column]


def shapes_of(rows: Mapping[tuple[str, ...], Sequence[Sequence[str]]]) -> list[Shape]:
    """Return the shapes of objects: by the texts around their values, the values of each."""
    return [_shape(around, found) for around, found in rows.items()]


def objects_of(shapes: Iterable[Shape]) -> Iterator[bytes]:
    """Yield the objects again, shape by shape.

    Raises:
        LookupError: a number leads nowhere.
        TypeError: there are not as many values as places.
        ValueError: there are not as many values as objects, or they do not have their form.
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
    columns: list[tuple[str, ...]] = []
    for column, after in zip(zip(*rows, strict=True), around[1:], strict=True):
        if column.count(column[0]) == len(column):
            texts[-1] += f"{column[0]}{after}"
            continue
        texts.append(after)
        columns.append(column)
    return Shape(len(rows), texts, list(_columns(columns)))


def _columns(columns: Sequence[tuple[str, ...]]) -> Iterator[Column]:
    # By the contents of rows, and by whole columns: the number of the first that is like that.
    known: dict[tuple[int, ...], int] = {}
    whole: dict[tuple[str, ...], int] = {}
    repeated = [2 * len(set(column)) <= len(column) for column in columns]
    for number, column in enumerate(columns):
        same = whole.setdefault(column, number)
        if same != number:
            yield Column(like=same)
        elif repeated[number]:
            yield _repeated(column, number, known)
        else:
            others = [n for n, each in enumerate(repeated) if each and _begins(column, columns[n])]
            after = max(others, key=lambda n: len(columns[n][0]), default=-1)
            yield _each_once(column, after, columns)


def _repeated(column: tuple[str, ...], number: int, known: dict[tuple[int, ...], int]) -> Column:
    """Return each value once, with the places of the rows' values."""
    distinct = dict.fromkeys(column)
    places = {value: place for place, value in enumerate(distinct)}
    rows = tuple(map(places.__getitem__, column))
    like = known.setdefault(rows, number)
    values, form, width = written(list(distinct))
    if like != number:
        return Column(values, like=like, form=form, width=width)
    rising = all(before <= after for before, after in pairwise(rows))
    steps = [after - before for before, after in pairwise((0, *rows))] if rising else list(rows)
    return Column(values, steps, rising=rising, form=form, width=width)


def _begins(column: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether each value begins with that of another column."""
    return bool(other[0]) and all(map(str.startswith, column, other))


def _each_once(column: tuple[str, ...], after: int, columns: Sequence[Sequence[str]]) -> Column:
    """Return a value for each row, or what of it comes after that of another column."""
    rest, between = list(column), ""
    if after >= 0:
        rest = [value[len(first) :] for value, first in zip(column, columns[after], strict=True)]
        between = _common(rest)
        rest = [value[len(between) :] for value in rest]
    values, form, width = written(rest)
    return Column(values, after=after, between=between, form=form, width=width)


def _common(values: Sequence[str]) -> str:
    """Return the longest text with which all begin: that of the first and the last in order."""
    low, high = min(values), max(values)
    size = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return low[:size]


def _values(columns: Sequence[Column]) -> list[list[str]]:
    rows: list[list[int] | None] = []
    made: list[list[str]] = []
    for column in columns:
        at = column.rows if column.like < 0 else rows[column.like]
        if column.rows is not None and column.rising:
            at = list(accumulate(column.rows))
        if _is_copy(column):
            values = made[column.like]
        else:
            values = written_form(column.values, column.form, column.width)
            values = values if at is None else [values[place] for place in at]
        rows.append(at)
        made.append(values)
    for number, column in enumerate(columns):
        if column.after >= 0:
            made[number] = [
                f"{start}{column.between}{rest}"
                for start, rest in zip(made[column.after], made[number], strict=True)
            ]
    return [made[each.like] if _is_copy(each) else made[n] for n, each in enumerate(columns)]


def _is_copy(column: Column) -> bool:
    return column.like >= 0 and not column.values
