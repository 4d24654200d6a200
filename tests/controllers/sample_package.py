"""A package with plugins, laid out in a folder as an installer would."""

from __future__ import annotations

from pathlib import Path

SOURCE = """
from reprieve.engine.placement.reasons import Code
from reprieve.engine.scheduling.outcome import Explanation, Preemption, Sentence

asked = []


def patient(simulation, group, queued, policy, choose, failed):
    asked.append("patient")
    return Preemption(Code.UNSCHEDULABLE, Explanation(Sentence.NO_PLACEMENTS), evaluated=False)


def settled(simulation, group, queued, policy, choose, failed):
    asked.append("settled")
    return Preemption(Code.UNRESOLVABLE, Explanation(Sentence.NO_PLACEMENTS), evaluated=False)


def broken(simulation, group, queued, policy, choose, failed):
    raise RuntimeError("out of order")


constant = 7
"""
GROUP = "reprieve.pod_group_post_filters"
OFFERED = {
    GROUP: {
        "Patient": "sample_plugins:patient",
        "Settled": "sample_plugins:settled",
        "Broken": "sample_plugins:broken",
        "Constant": "sample_plugins:constant",
        "Missing": "sample_plugins:nothing",
    },
    "reprieve.post_filters": {"PodsOnly": "sample_plugins:patient"},
}


def install(folder: Path, offered: dict[str, dict[str, str]], name: str = "sample") -> None:
    """Lay out what an installer leaves behind: the module, and the metadata beside it."""
    (folder / f"{name}_plugins.py").write_text(SOURCE)
    install_metadata(folder, offered, f"{name}-plugins")


def install_metadata(folder: Path, offered: dict[str, dict[str, str]], name: str) -> None:
    """Lay out the metadata alone."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    sections = (
        f"[{group}]\n" + "".join(f"{plugin} = {value}\n" for plugin, value in plugins.items())
        for group, plugins in offered.items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(sections))
