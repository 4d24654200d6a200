"""What docs/quota.md shows is accepted as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from reprieve.api import kueue
from reprieve.intake.quota import cluster_queue_row, local_queue_row, resource_flavor_row
from reprieve.jobs.table import BUILT_IN, job_kinds
from reprieve.settings.quota import quota_settings

DOCUMENT = (Path(__file__).parents[2] / "docs" / "quota.md").read_text()
CONVERT: dict[str, tuple[type, Any]] = {
    "ResourceFlavor": (kueue.ResourceFlavor, resource_flavor_row),
    "ClusterQueue": (kueue.ClusterQueue, cluster_queue_row),
    "LocalQueue": (kueue.LocalQueue, local_queue_row),
}


def blocks() -> list[str]:
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", DOCUMENT, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def test_the_objects_of_the_first_steps_are_read() -> None:
    text = next(block for block in blocks() if "ClusterQueue" in block)
    read = []
    for obj in yaml.safe_load_all(text):
        struct, convert = CONVERT[obj["kind"]]
        read.append(convert(msgspec.convert(obj, struct)))
    assert len(read) == len(CONVERT)


def test_the_row_of_an_own_kind_is_read() -> None:
    text = next(block for block in blocks() if "jobKinds" in block)
    settings = quota_settings(yaml.safe_load(text)["quota"])
    assert len(job_kinds(settings.job_kinds)) == len(BUILT_IN) + 1
