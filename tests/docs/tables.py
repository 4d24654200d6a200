"""Tables of the documents, read back."""

from __future__ import annotations


def table(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first heading is `heading`, without code marks."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return found
