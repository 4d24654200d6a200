"""What work describes is counted as what the API server makes of it, in every plane's question."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.whatif.questions.asked import requests_of_spec


def limited(cpu: str, **rest: str) -> dict[str, Any]:
    return {"name": "c", "image": "x", "resources": {"limits": {"cpu": cpu}}, **rest}


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        ({"containers": [limited("1"), limited("2")]}, {"cpu": 3_000}),
        ({"containers": [limited("1")], "initContainers": [limited("3")]}, {"cpu": 3_000}),
        (
            {
                "containers": [limited("1")],
                "initContainers": [limited("2", restartPolicy="Always"), limited("3")],
            },
            {"cpu": 5_000},
        ),
        (
            {
                "containers": [{"name": "c", "image": "x"}],
                "resources": {"limits": {"cpu": "3", "memory": "1Gi"}},
            },
            {"cpu": 3_000, "memory": 2**30},
        ),
        (
            {"containers": [limited("1")], "resources": {"limits": {"cpu": "3"}}},
            {"cpu": 1_000},
        ),
        ({"containers": [limited("1")], "overhead": {"cpu": "250m"}}, {"cpu": 1_250}),
        ({"containers": "none"}, {}),
    ],
)
def test_a_limit_without_a_request_counts_wherever_it_stands(
    spec: dict[str, Any], requests: dict[str, int]
) -> None:
    assert requests_of_spec(spec) == requests
