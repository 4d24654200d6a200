"""An option is declared in one row; values and schema of the chart follow from it."""

from __future__ import annotations

import json
from dataclasses import replace

import yaml

from reprieve.settings import options as rows
from reprieve.settings.option import Form, Option, keys, read
from reprieve.settings.options import OPTIONS
from tests.docs import option_rows
from tests.docs.option_rows import CHART, chart_schema, chart_values

PLAIN = [
    (section, option)
    for section, options in OPTIONS.items()
    for option in options
    if option.form is not Form.OWN
]


def test_the_chart_has_the_values_and_the_schema_of_the_rows() -> None:
    for name, make in (("values.yaml", chart_values), ("values.schema.json", chart_schema)):
        text = (CHART / name).read_text(encoding="utf-8")
        assert make(text) == text, f"{name}: python -m tests.docs.generated writes it"


def test_every_option_stands_in_the_chart_with_its_default() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    for section, options in OPTIONS.items():
        assert set(keys(options)) <= set(values[section]), section
        assert set(keys(options)) <= set(schema[section]["properties"]), section
    assert len(PLAIN) > 15
    for section, option in PLAIN:
        assert values[section][option.key] == option.default, option.key


def test_no_key_is_declared_twice() -> None:
    for section, options in OPTIONS.items():
        assert len(set(keys(options))) == len(options), section


def test_a_new_row_is_read_and_stands_in_the_page_the_values_and_the_schema() -> None:
    new = Option("mostVictims", Form.NUMBER, 8, "victims of a plan at most", "most", most=9)
    before = rows.SCHEDULING
    with_it = (*before, new)
    assert read(with_it, {"mostVictims": 3}, "here")["most"] == 3
    table = option_rows._table("scheduling", with_it)
    assert "| `mostVictims` | `8` | victims of a plan at most |" in table
    block = option_rows._value(new)
    assert yaml.safe_load(block) == {"mostVictims": 8}
    assert "# Victims of a plan at most." in block
    assert option_rows._schema(replace(new, least=1)) == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
    }
