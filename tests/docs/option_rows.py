"""Writes what follows from the rows of `reprieve.settings.options`: tables, chart values, schema.

`python -m tests.docs.generated` writes them; a test compares. Options with a reader of their own
have values and schema by hand in the chart, since those are mappings of many keys.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from reprieve.settings.option import Form, Option
from reprieve.settings.options import IDLE, OPTIONS, QUOTA, SCHEDULING

CHART: Final = Path(__file__).parents[2] / "charts" / "reprieve"
_WIDTH: Final = 100
#: What a page shows and a comment of the chart has no use for.
_ASIDES: Final = re.compile(r"[,:] see (below|\[[^]]*\]\([^)]*\))")
_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")


def scheduling_options() -> str:
    """Return the options of the scheduling plane, as its page has them."""
    return _table("scheduling", SCHEDULING)


def quota_options() -> str:
    """Return the options of the quota plane, as its page has them."""
    return _table("quota", QUOTA)


def idle_options() -> str:
    """Return the options of the idle plane beyond its variables, as its page has them."""
    beyond = [option for option in IDLE if option.recorded or option.key in _BESIDE]
    return _table("gpuPreemption", beyond, "value")


_BESIDE: Final = ("queuedDemandSum", "victimOrder", "vendors", "notice", "preemptionDelay")


def _between(block: str, found: re.Match[str]) -> str:
    return found[1] + block + found[2]


def chart_values(text: str) -> str:
    """Return the chart's values with all blocks of options made anew."""
    for section, options in OPTIONS.items():
        block = "".join(_value(option) for option in options if _made(option))
        pattern = re.compile(
            rf"(^  # options of {section}, made from their rows\n).*?(^  # end of them\n)",
            re.DOTALL | re.MULTILINE,
        )
        text = pattern.sub(partial(_between, block), text)
    return text


def chart_schema(text: str) -> str:
    """Return the schema of the chart's values with all options made anew."""
    schema = json.loads(text)
    for section, options in OPTIONS.items():
        properties = schema["properties"][section]["properties"]
        properties.update({each.key: _schema(each) for each in options if _made(each)})
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write_chart() -> None:
    """Write both files of the chart."""
    for name, make in (("values.yaml", chart_values), ("values.schema.json", chart_schema)):
        file = CHART / name
        file.write_text(make(file.read_text(encoding="utf-8")), encoding="utf-8")


def _made(option: Option) -> bool:
    return option.form is not Form.OWN


def _table(section: str, options: Iterable[Option], head: str = "option") -> str:
    rows = "".join(f"| `{o.key}` | {_default(o)} | {o.meaning} |\n" for o in options)
    return f"| {head} `{section}.` | default | meaning |\n|---|---|---|\n{rows}"


def _default(option: Option) -> str:
    said = str(option.default).lower() if isinstance(option.default, bool) else str(option.default)
    return said if said == "see below" else f"`{said}`" if said else "none"


def _value(option: Option) -> str:
    plain = _LINK.sub(r"\1", _ASIDES.sub("", option.meaning)).replace("`", "")
    said = f"{plain[0].upper()}{plain[1:]}."
    comment = textwrap.fill(
        said, _WIDTH, initial_indent="  # ", subsequent_indent="  # ", break_on_hyphens=False
    )
    value = json.dumps(option.default)
    return f"{comment}\n  {option.key}: {value}\n"


def _schema(option: Option) -> Mapping[str, Any]:
    if option.form is Form.SWITCH:
        return {"type": "boolean"}
    if option.form is Form.NUMBER:
        return {"type": "integer", "minimum": option.least, "maximum": option.most}
    if option.form is Form.WORD:
        return {"enum": list(option.words)}
    if option.form is Form.NAME:
        return {"type": "string"}
    return {"$ref": "#/definitions/duration"}
