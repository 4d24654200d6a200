"""No process outlives the tests that started it, however they end.

Whoever starts one either has the kernel end it with the tests (`reprieve.scenarios.with_parent`,
`tests.with_parent`) or stands here with why it ends by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
STARTS: Final = frozenset({"Popen", "create_subprocess_exec", "create_subprocess_shell"})
_COMMAND: Final = "one command, which ends with its answer"
ENDS_BY_ITSELF: Final = {
    "chart/test_helm_test.py": "a probe with a timeout of its own",
    "chart/test_installation.py": _COMMAND,
    "cli/test_operator_namespace.py Installed": _COMMAND,
    "docs/shell.py Shell": _COMMAND,
    "docs/test_commands_run.py ended": _COMMAND,
    "docs/test_troubleshooting.py": _COMMAND,
    "frontend/browser/test_reprieve_up.py Playground": _COMMAND,
    "frontend/picture.py _take": "the demo, which the command that takes the picture stops",
    "idle/test_explain.py": _COMMAND,
    "integration/test_chart.py": _COMMAND,
    "integration/test_chart_values.py": _COMMAND,
    "integration/test_installing_rights.py": _COMMAND,
    "integration/test_plan.py": _COMMAND,
    "integration/test_topologies.py": _COMMAND,
    "kubectl/play.py": "a command; one that watches loses its server",
    "kueue/test_guides.py": _COMMAND,
    "node/sweeper.py Sweeper": "it removes what is left when the tests have ended",
    "peers/test_peers.py _output": "a script that plays to its end, or loses its server",
    "scenarios/test_with_parent.py": "the player is what is killed",
    "scheduling/test_notice_handler.py": "a script below `timeout`",
    "scheduling/test_walkthrough.py": _COMMAND,
    "simulation/test_shards.py": "a study, which is killed",
    "simulation/test_simulate_command.py": "a study of a few seconds",
    "tutorials/play.py bash": _COMMAND,
    "walkthrough/conftest.py Site": "a command; one that watches loses its server",
    "walkthrough/conftest.py explained": _COMMAND,
}


def test_every_process_ends_with_the_tests_or_by_itself() -> None:
    found = set(_started())
    named = {each for each in found if each in ENDS_BY_ITSELF or _file(each) in ENDS_BY_ITSELF}
    assert found - named == set()


def test_what_is_said_to_end_by_itself_is_started() -> None:
    found = set(_started())
    assert set(ENDS_BY_ITSELF) <= found | {_file(each) for each in found}


def _file(started: str) -> str:
    return started.partition(" ")[0]


def _started() -> Iterator[str]:
    """Yield file and outermost function or class of each start that names no `with_parent`."""
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(start in text for start in STARTS):
            continue
        for part in ast.parse(text).body:
            starts = any(
                (isinstance(node, ast.Attribute) and node.attr in STARTS)
                or (isinstance(node, ast.Name) and node.id in STARTS)
                for node in ast.walk(part)
                if not _only_declares(part)
            )
            if starts and "with_parent" not in ast.unparse(part):
                yield f"{path.relative_to(TESTS)} {getattr(part, 'name', '')}".strip()


def _only_declares(part: ast.stmt) -> bool:
    return isinstance(part, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)
