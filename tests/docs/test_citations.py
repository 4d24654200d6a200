"""What docstrings and comments cite can be opened, in `docs/spec/` and `docs/design.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.docs.tables import topic

ROOT: Final = Path(__file__).parents[2]
SPEC: Final = ROOT / "docs" / "spec"
PAGES: Final = {
    "the idle plane": "idle.md",
    "the quota plane": "quota.md",
    "the scheduling plane": "scheduling.md",
    "gang jobs": "gang-jobs.md",
    "disruptions": "disruptions.md",
    "": "scheduling.md",  # a bare "specification 7.5"
}
_NUMBER: Final = r"\d+(?:\.\d+)*"
_CITED: Final = re.compile(
    rf"\b[Ss]pecification(?: of (?P<page>{'|'.join(filter(None, PAGES))}))?"
    rf"(?:'s)?,?(?: sections?)? (?P<numbers>{_NUMBER}(?:(?:, and|,| and| to) {_NUMBER})*)"
)
_DESIGN: Final = re.compile(
    r"\bthe design's (?:sections? )?(?P<names>\"[^\"]+\"(?: and \"[^\"]+\")*)"
)
_FEWEST: Final = {"specification": 250, "design": 40}


def test_every_cited_section_of_the_specification_stands_in_its_page() -> None:
    sections = {name: _sections(SPEC / name) for name in set(PAGES.values())}
    cited = [
        (where, PAGES[found["page"] or ""], number)
        for where, text in _texts()
        for found in _CITED.finditer(text)
        for number in re.findall(_NUMBER, found["numbers"])
    ]

    assert len(cited) >= _FEWEST["specification"]
    assert [c for c in cited if c[2] not in sections[c[1]]] == []


def test_every_cited_section_of_the_design_stands_there() -> None:
    design = topic("design")
    headings = {
        line.lstrip("# ").split(" (")[0] for line in design.splitlines() if line.startswith("#")
    }
    emphasised = set(re.findall(r"\*\*([^*]+)\*\*", design)) | set(
        re.findall(r"^(Recovery): ", design, re.MULTILINE)
    )
    cited = [
        (where, name)
        for where, text in _texts()
        for found in _DESIGN.finditer(text)
        for name in re.findall(r'"([^"]+)"', found["names"])
    ]

    assert len(cited) >= _FEWEST["design"]
    known = headings | emphasised
    assert [c for c in cited if not any(c[1] in name for name in known)] == []


@pytest.mark.parametrize("page", sorted({*PAGES.values(), "idle-signals.md"}))
def test_every_page_is_listed(page: str) -> None:
    assert f"({page})" in (SPEC / "README.md").read_text()


def _texts() -> Iterator[tuple[str, str]]:
    """Yield each source file with its lines joined, since citations run over line ends."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield str(path.relative_to(ROOT)), re.sub(r"\s*\n\s*(?:#:?\s*)?", " ", path.read_text())


def _sections(page: Path) -> Mapping[str, str]:
    """Return headings by number; `12.3` is also the third item of a section 12 that is a list."""
    found: dict[str, str] = {}
    section = ""
    for line in page.read_text().splitlines():
        if heading := re.match(rf"#+ ({_NUMBER})\.? (.+)", line):
            section = heading[1]
            found[section] = heading[2]
        elif section and (item := re.match(r"(?:(\d+)\.|(\d+\.\d+)) ", line)):
            found.setdefault(item[2] or f"{section}.{item[1]}", line)
    return found
