"""`python -m tests.situations.write` writes the answers anew; read what has changed."""

from __future__ import annotations

from pathlib import Path

from tests.situations import devices, groups, nodes, queues, racks, slips, surroundings
from tests.situations.asked import SITUATIONS, text_of

TOLD = Path(__file__).parent / "told"
MODULES = (nodes, groups, queues, racks, slips, devices, surroundings)


def names_of(module: str) -> list[str]:
    """Return the situations of a module, in the order in which it has them."""
    return [name for name, make in SITUATIONS.items() if make.__module__ == module]


def main() -> None:
    TOLD.mkdir(exist_ok=True)
    for module in MODULES:
        text = "\n".join(map(text_of, names_of(module.__name__)))
        (TOLD / f"{module.__name__.rpartition('.')[2]}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
