"""Patterns of `matches`: RE2, whose time is bounded by text times pattern, never exponential.

Syntax and meaning are RE2's, as in Kubernetes: what it does not compile is an error, and so is a
program over 1 MiB (counted repetitions of repetitions, whole Unicode classes). A few patterns are
kept compiled, refusals included, since compiling is what costs. A match is charged as the CEL
library charges it, by the length of the pattern, or by the size of its program where that is much
larger than the text states (`.{1000}`). Source: the CEL language definition; RE2's syntax.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from reprieve.engine.placement.filters.dynamic.device_costs import Budget, tenth

__all__ = ["InvalidPattern", "Pattern", "pattern_of"]

_MEMORY: Final = 1 << 20  # bytes of a compiled pattern, the states it finds while matching included
_KEPT: Final = 128  # as many as the library keeps: 128 MiB of the worst ones, ordinarily some KiB
_CLASSES: Final = 256  # `\p` and `\P`; more of the large ones than fit into the memory anyway
_INSTRUCTIONS: Final = 16  # of a program that the charge by length allows for per 4 characters


class InvalidPattern(ValueError):
    """RE2 does not compile it; the text begins as the API server's."""


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A compiled pattern. `size`: of its program, in instructions."""

    text: str
    size: int
    compiled: Any

    def found_in(self, text: str, budget: Budget) -> bool:
        """Return whether the pattern matches somewhere in a text.

        Raises:
            CostExceeded: more than the budget allows.
        """
        expressions = max(-(-len(self.text) // 4), self.size // _INSTRUCTIONS)
        budget.spend(tenth(len(text) + 1) * expressions)
        return self.compiled.search(text.encode("utf-8", "replace")) is not None


def pattern_of(text: str) -> Pattern:
    """Return a compiled pattern.

    Raises:
        InvalidPattern: it is not in RE2's syntax, or too large.
    """
    found = _compiled(text)
    if isinstance(found, str):
        raise InvalidPattern(f"error parsing regexp: {found}")
    return found


@lru_cache(maxsize=_KEPT)
def _compiled(text: str) -> Pattern | str:
    import re2

    if text.count("\\p") + text.count("\\P") > _CLASSES:
        return "pattern too large - too many Unicode classes"
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY
    try:
        compiled = re2.compile(text, options)
    except re2.error as error:
        (message,) = error.args
        said = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        return said if len(said) <= 80 else f"{said[:77]}..."
    return Pattern(text, compiled.programsize, compiled)
