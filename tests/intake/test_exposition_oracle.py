"""The picker against the full parser of prometheus_client, on generated expositions.

Label rules are written out again here, from the specification, so that nothing of the picker takes
part in the expectation. Deliberately absent: text that only one of the two accepts (a missing last
newline, exemplars on gauges, quoted names).
"""

from __future__ import annotations

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from reprieve.engine.idle.vendors import AMD
from reprieve.intake.exposition import ExpositionParser

NAMES = ("gpu_gfx_activity", "gpu_gfx_activity_total", "gpu_umc_activity", "gpu_gfx", "up", "a:b")
LABELS = (
    *("namespace", "kubernetes_namespace", "k8s_namespace_name", "pod", "pod_name", "k8s_pod_name"),
    *("gpu_id", "gpu", "gpu_partition_id", "container", "note"),
)
VALUES = st.one_of(
    st.sampled_from(["", "0", "a", 'q"', "back\\slash", "line\nbreak", "} 1", 'pod="x"', "ä,{}"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=6),
)
NUMBERS = st.one_of(
    st.floats(0, 100).map(repr),
    st.floats().map(repr),
    st.sampled_from(["NaN", "+Inf", "-Inf", "0", "100", "65535", "1e1", "-1", "5."]),
)


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@st.composite
def sample_lines(draw: st.DrawFn, name: str) -> str:
    labels: dict[str, str] = draw(st.dictionaries(st.sampled_from(LABELS), VALUES, max_size=8))
    if draw(st.booleans()):
        labels |= {"namespace": "team", "pod": draw(st.sampled_from(["a", "b"]))}
    blob = ",".join(f'{key}="{escaped(value)}"' for key, value in labels.items())
    timestamp = draw(st.sampled_from(["", " 1395066363000"]))
    ends_with_comma, empty_braces = draw(st.tuples(st.booleans(), st.booleans()))
    comma = "," if labels and ends_with_comma else ""
    braces = f"{{{blob}{comma}}}" if labels or empty_braces else ""
    return f"{name}{braces} {draw(NUMBERS)}{timestamp}\n"


@st.composite
def expositions(draw: st.DrawFn) -> str:
    text = ""
    for name in ["gpu_gfx_activity", *draw(st.lists(st.sampled_from(NAMES[1:]), unique=True))]:
        kind = draw(st.sampled_from(["gauge", "untyped", "", "counter"]))
        if draw(st.booleans()):
            text += f"# HELP {name} {escaped(draw(VALUES))}\n"
        text += f"# TYPE {name} {kind}\n" if kind else ""
        text += "".join(draw(st.lists(sample_lines(name), max_size=4)))
        text += draw(st.sampled_from(["", "\n", "# a comment {\n"]))
    return text


def first(labels: dict[str, str], *names: str) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def expected(text: str) -> list[tuple[str, str, str, str, float]]:
    found = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name != "gpu_gfx_activity" or family.type not in ("gauge", "unknown"):
                continue
            namespace = first(
                sample.labels, "namespace", "kubernetes_namespace", "k8s_namespace_name"
            )
            pod = first(sample.labels, "pod", "pod_name", "kubernetes_pod_name", "k8s_pod_name")
            usable = math.isfinite(sample.value) and 0 <= sample.value <= 100
            if namespace and pod and usable:
                gpu = first(sample.labels, "gpu_id", "gpu")
                partition = sample.labels.get("gpu_partition_id", "")
                found.append((namespace, pod, gpu, partition, sample.value))
    return found


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expositions(), st.integers(1, 200))
def test_the_picker_agrees_with_the_full_parser(text: str, size: int) -> None:
    body = text.encode()
    parser = ExpositionParser([AMD])
    for start in range(0, len(body), size):
        parser.feed(body[start : start + size])
    assert [
        (s.namespace, s.pod, s.gpu_id, s.partition, s.utilization) for s in parser.finish().samples
    ] == expected(text)


def test_generated_expositions_hold_samples_often_enough() -> None:
    seen = {"cases": 0, "with samples": 0}

    @settings(
        max_examples=300,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(expositions())
    def count(text: str) -> None:
        seen["cases"] += 1
        seen["with samples"] += bool(expected(text))

    count()
    assert seen["with samples"] >= seen["cases"] * 0.2, seen
