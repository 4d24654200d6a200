"""Texts for people count correctly: `1 pod`, `8 pods`, never `1 pods`.

No f-string or template of the product puts a plural noun after a number: `counted` and
`of_resource` choose its form. `3 of 8 pods` counts a whole, whose noun is plural by itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from reprieve.answers.quantities import amounts
from reprieve.units.counts import counted, of_resource
from reprieve.wording.diagnosis import amounts_text

ROOT: Final = Path(__file__).parents[2] / "src/reprieve"
_NOUNS: Final = (
    *("pod", "node", "workload", "Workload", "victim", "gang", "unit", "job", "queue", "device"),
    *("ClusterQueue", "member", "attempt", "time", "second", "minute", "turn", "placement", "run"),
    *("GPU", "other", "group", "replica", "flavor", "domain", "candidate", "preemption", "cycle"),
    *("slice", "eviction", "displacement", "object", "lineage", "decision", "record", "file"),
    *("step", "stage", "day", "hour", "line", "budget", "tenant", "team", "namespace", "seed"),
    *("trace", "policy", "reason", "rule", "row", "page", "viewer", "place", "holder", "claim"),
)
_PLURALS: Final = "|".join(
    "policies" if noun == "policy" else f"{noun}e?s" if noun[-1] in "sx" else f"{noun}s"
    for noun in _NOUNS
)
_AFTER: Final = re.compile(rf"^ (?:more |other )?(?:{_PLURALS})\b")
_TEMPLATE: Final = re.compile(rf"(.{{0,12}})\{{[a-z_0-9]*(?::,)?\}} (?:{_PLURALS})\b")
#: A file without it has no such text, and is not parsed.
_MAY_COUNT: Final = re.compile(rf"\}} (?:more |other )?(?:{_PLURALS})\b")
#: Before the number: what follows counts a whole, or at least two.
_OF_A_WHOLE: Final = re.compile(r"(?:\bof|/|\bof its|\bfirst|\bof the)\s*$")
#: Texts of kube-scheduler, Kueue and Kaiwo, which stay to the letter.
_TEXTS_OF_OTHERS: Final = frozenset({"kube_scheduler.py", "kueue_jobs.py", "koordinator.py"})


def _texts() -> Iterator[tuple[str, ast.JoinedStr | ast.Constant]]:
    for path in sorted(ROOT.rglob("*.py")):
        if path.name in _TEXTS_OF_OTHERS:
            continue
        text = path.read_text(encoding="utf-8")
        if not _MAY_COUNT.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            ):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def _miscounted(text: ast.JoinedStr | ast.Constant) -> Iterator[str]:
    if isinstance(text, ast.Constant):
        for found in _TEMPLATE.finditer(str(text.value)):
            if not _OF_A_WHOLE.search(found.group(1)):
                yield found.group()
        return
    before = ""
    for part, following in zip(text.values, [*text.values[1:], None], strict=True):
        if isinstance(part, ast.Constant):
            before = str(part.value)
            continue
        assert isinstance(part, ast.FormattedValue)
        # A constant of the code is written in capitals, and is more than one; a name runs.
        constant = isinstance(part.value, ast.Name) and (
            part.value.id.isupper() or part.value.id == "name"
        )
        if isinstance(following, ast.Constant) and not constant:
            noun = _AFTER.match(str(following.value))
            if noun is not None and not _OF_A_WHOLE.search(before):
                yield f"{{{ast.unparse(part.value)}}}{noun.group()}"
        before = ""


def test_no_text_of_the_product_has_a_plural_noun_after_a_number() -> None:
    texts = list(_texts())
    assert len(texts) > 1_000
    assert [(where, each) for where, text in texts for each in _miscounted(text)] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('f"it lacks {n} pods"', ["{n} pods"]),
        ('f"{len(all)} more nodes are free"', ["{len(all)} more nodes"]),
        ('"{missing} pods are missing"', ["{missing} pods"]),
        ('f"{n} of {all} pods"', []),
        ('f"at most {MOST} pods"', []),
        ('f"{name} runs"', []),
    ],
)
def test_a_miscounted_text_is_found(code: str, found: list[str]) -> None:
    text = ast.parse(code, mode="eval").body
    assert isinstance(text, ast.JoinedStr | ast.Constant)
    assert list(_miscounted(text)) == found


def test_one_is_singular_and_all_other_numbers_are_plural() -> None:
    assert [counted(n, "pod") for n in (0, 1, 2, 18_204)] == [
        "0 pods",
        "1 pod",
        "2 pods",
        "18,204 pods",
    ]
    assert counted(2, "policy", "policies") == "2 policies"


def test_one_of_the_resource_pods_is_a_pod() -> None:
    assert [of_resource(each, "pods") for each in ("0", "1", "2", "11")] == [
        "0 pods",
        "1 pod",
        "2 pods",
        "11 pods",
    ]
    assert of_resource("1", "nvidia.com/gpu") == "1 nvidia.com/gpu"
    held = {"pods": 1, "nvidia.com/gpu": 2}
    assert amounts(held) == "2 nvidia.com/gpu, 1 pod"
    assert amounts_text(held) == "2 nvidia.com/gpu, 1 pod"
