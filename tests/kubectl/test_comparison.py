"""What counts as the same answer: placeholders stand for their kind of text, for nothing else."""

from __future__ import annotations

import pytest

from tests.kubectl.exceptions import EMBEDDED
from tests.kubectl.golden import LIMIT_PERCENT, Answer, difference

RECORDED = Answer("NAME   READY   AGE\npod-<rand>   0/1     <t>\nuid: <uid>\n", "", 0)
UID = "45548ff6-88a5-4dc3-bb42-118a724d17d4"


def said(text: str, stderr: str = "", rc: int = 0) -> str:
    return difference(RECORDED, Answer(text, stderr, rc))


def test_what_varies_from_run_to_run_is_the_same() -> None:
    assert said(f"NAME        READY   AGE\npod-x7k2p   0/1     2m13s\nuid: {UID}\n") == ""


@pytest.mark.parametrize(
    "text",
    [
        f"NAME   READY   AGE\npod-x7k2p   1/1     5s\nuid: {UID}\n",
        f"NAME   READY   AGE\npod-x7k2p   0/1     never\nuid: {UID}\n",
        "NAME   READY   AGE\npod-x7k2p   0/1     5s\nuid: none\n",
        f"NAME   READY   AGE\npod-x7k2p   0/1     5s\nuid: {UID}",
        f"NAME   READY   AGE\npod-x7k2p   0/1     5s\npod-x7k2q   0/1     5s\nuid: {UID}\n",
        f" NAME   READY   AGE\npod-x7k2p   0/1     5s\nuid: {UID}\n",
        "",
    ],
)
def test_any_other_text_is_a_difference(text: str) -> None:
    assert said(text)


def test_standard_error_and_the_exit_code_count_too() -> None:
    same = f"NAME   READY   AGE\npod-x7k2p   0/1     5s\nuid: {UID}\n"
    assert "Warning: x" in said(same, stderr="Warning: x\n")
    assert said(same, rc=1) == "exit code 1, not 0"


def test_exceptions_are_of_known_groups_and_say_why() -> None:
    assert {name.partition("::")[0] for name in EMBEDDED} <= LIMIT_PERCENT.keys()
    assert all(reason.strip() for reason in EMBEDDED.values())
