"""The site has every document, and every link of a document leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
KUBELOCAL = [*(ROOT / "kubelocal").glob("*.md"), *(ROOT / "kubelocal/docs").glob("*.md")]
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, list):
                yield from _pages(value)
            else:
                yield value


def _anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as both the site and code hosts make them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE
    )
    plain = [re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    found = {re.sub(r"[^\w\- ]", "", each).strip().replace(" ", "-") for each in plain}
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def test_every_document_stands_in_the_navigation_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = list(_pages(site["nav"]))
    assert len(set(listed)) == len(listed)
    assert set(listed) == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert site["plugins"] == ["search"]


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")), *sorted(KUBELOCAL)],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_fences_are_plain_and_every_link_leads_somewhere(path: Path) -> None:
    # A word more behind the language, and the site takes the fence for text.
    fences = re.findall(r"^ *(```.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert [fence for fence in fences if not re.fullmatch(r"```[a-z]*", fence)] == []
    for target in _LINK.findall(_CODE.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{target}: there is no such file"
        if anchor and file.suffix == ".md":
            assert anchor in _anchors(file.read_text(encoding="utf-8")), (
                f"{target}: no such heading"
            )
