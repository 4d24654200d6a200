"""What is read from Prometheus text, and what makes a whole body unusable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprieve.engine.idle.vendors import AMD, INTEL, NVIDIA
from reprieve.intake.exposition import (
    Defect,
    ExpositionParser,
    InvalidSample,
    MalformedExposition,
    Sample,
    parse_exposition,
    parse_samples,
)


def amd(
    pod: str, utilization: float, gpu: str = "0", partition: str = "", namespace: str = "team"
) -> Sample:
    return Sample(namespace, pod, gpu, partition, utilization, "amd", "gpu_gfx_activity")


def line(labels: str, value: str = "5", name: str = "gpu_gfx_activity") -> bytes:
    return f"{name}{{{labels}}} {value}\n".encode()


def test_a_gauge_in_the_exporters_own_shape_is_read() -> None:
    text = b"""# HELP gpu_gfx_activity Graphics engine usage percentage (0 - 100)
# TYPE gpu_gfx_activity gauge
gpu_gfx_activity{card_model="0x74a1",gpu_id="0",gpu_partition_id="0",namespace="team",pod="a"} 2.1
gpu_gfx_activity{gpu_id="1",namespace="team",pod="a",serial_number="x"} 0.3
# HELP gpu_umc_activity Memory engine usage percentage (0 - 100)
# TYPE gpu_umc_activity gauge
gpu_umc_activity{gpu_id="0",namespace="team",pod="a"} 77
"""
    assert parse_samples(text, [AMD]) == [amd("a", 2.1, partition="0"), amd("a", 0.3, gpu="1")]


@pytest.mark.parametrize("word", ["gauge", "untyped", "Gauge"])
def test_gauges_and_untyped_families_count(word: str) -> None:
    text = f"# TYPE gpu_gfx_activity {word}\n".encode() + line('pod="a",namespace="team"')
    assert parse_samples(text, [AMD]) == [amd("a", 5.0, gpu="")]


@pytest.mark.parametrize("word", ["counter", "histogram", "summary", "gauge_histogram"])
def test_a_family_of_another_type_is_skipped(word: str) -> None:
    text = f"# TYPE gpu_gfx_activity {word}\n".encode() + line('pod="a",namespace="team"')
    assert parse_samples(text, [AMD]) == []
    assert parse_samples(text.replace(b"# TYPE", b"#TYPE"), [AMD]) == []


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ('pod="p",pod_name="q",namespace="team",kubernetes_namespace="n"', amd("p", 5.0, gpu="")),
        (
            'pod="exporter",exported_pod="p",namespace="gpu",exported_namespace="team"',
            amd("p", 5.0, gpu=""),
        ),
        ('pod="",pod_name="q",namespace="",k8s_namespace_name="team"', amd("q", 5.0, gpu="")),
        ('"k8s.pod.name"="p","k8s.namespace.name"="team",gpu="3"', amd("p", 5.0, gpu="3")),
        ('pod="p",namespace="team",gpu_id="1",gpu="3"', amd("p", 5.0, gpu="1")),
        ('kubernetes_pod_name="p",kubernetes_namespace="team"', amd("p", 5.0, gpu="")),
        ('k8s_pod_name="p",namespace="team"', amd("p", 5.0, gpu="")),
    ],
)
def test_the_first_label_that_is_not_empty_is_taken(labels: str, expected: Sample) -> None:
    assert parse_samples(line(labels), [AMD]) == [expected]


def test_a_gpu_that_nobody_holds_is_counted_and_not_a_sample() -> None:
    text = line('pod="",namespace="",gpu_id="0"') + line('pod="p",gpu_id="1"')
    exposition = parse_exposition(text, [AMD])
    assert (exposition.samples, exposition.invalid, exposition.unassigned) == ([], [], 2)


def test_partitions_of_one_gpu_stay_apart() -> None:
    text = b"".join(
        line(f'pod="p",namespace="team",gpu_id="0",gpu_partition_id="{n}"', value)
        for n, value in enumerate(["10", "70"])
    )
    assert parse_samples(text, [AMD]) == [amd("p", 10.0, "0", "0"), amd("p", 70.0, "0", "1")]


@pytest.mark.parametrize(
    ("value", "defect"),
    [
        ("NaN", Defect.NAN),
        ("+Inf", Defect.INFINITE),
        ("-Inf", Defect.INFINITE),
        ("-0.5", Defect.NEGATIVE),
        ("100.1", Defect.ABOVE_100),
        ("65535", Defect.ABOVE_100),
        ("9223372036854775794", Defect.ABOVE_100),
    ],
)
def test_a_value_that_no_gpu_can_have_is_set_apart(value: str, defect: Defect) -> None:
    text = line('pod="p",namespace="team",gpu_id="0"', value) + line('pod="q",namespace="team"')
    exposition = parse_exposition(text, [AMD])
    assert exposition.samples == [amd("q", 5.0, gpu="")]
    assert exposition.invalid == [InvalidSample("team", "p", "0", defect)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('gpu_gfx_activity{pod="p",namespace="team"} 1.5e1 1395066363000', 15.0),
        ('gpu_gfx_activity{pod="p",namespace="team"} 7\t-5', 7.0),
        ('gpu_gfx_activity {pod="p", namespace="team",} 7', 7.0),
        ('  gpu_gfx_activity\t{ pod = "p" , namespace="team" }\t.5', 0.5),
        ('{"gpu_gfx_activity",pod="p",namespace="team"} 3', 3.0),
        ('{pod="p","gpu_gfx_activity",namespace="team"} 3', 3.0),
        ('gpu_gfx_activity{note="pod=\\"x\\",} 1",pod="p",namespace="team"} 4', 4.0),
        ('gpu_gfx_activity{pod="p",namespace="team"} 100', 100.0),
    ],
)
def test_every_form_of_a_sample_line_is_understood(text: str, value: float) -> None:
    (found,) = parse_samples(f"{text}\n".encode(), [AMD])
    assert replace(found, at=None) == amd("p", value, gpu="")
    own = text.rpartition("}")[2].split()[1:] if "}" in text else []
    assert found.at == (int(own[0]) if own else None)


def test_a_last_line_that_may_be_cut_off_is_refused() -> None:
    text = line('pod="p",namespace="team"', "95")
    with pytest.raises(MalformedExposition, match="cut off"):
        parse_samples(text[:-2], [AMD])


def test_escapes_in_label_values_are_resolved() -> None:
    text = line(r'pod="a\\b\"c\nd",namespace="team",gpu_id="ä"')
    assert parse_samples(text, [AMD]) == [amd('a\\b"c\nd', 5.0, gpu="ä")]


@pytest.mark.parametrize(
    "text",
    [
        "this is not prometheus text {{",
        "<!DOCTYPE html><html><body>404</body></html>",
        '{"status":"success","data":{}}',
        "other_metric",
        'other_metric{a="b"}',
        'other_metric{a="b"} five',
        'other_metric{a="b" 5',
        "5",
        "other-metric 5",
        'gpu_gfx_activity{pod="p"',
        'gpu_gfx_activity{pod="p",namespace="team"} x',
        'gpu_gfx_activity{pod="p",namespace="team"} 1_0',
        'gpu_gfx_activity{pod="p",namespace="team"} 0x1p3',
        'gpu_gfx_activity{pod="p" namespace="team"} 1',
        'gpu_gfx_activity{pod=p,namespace="team"} 1',
        'gpu_gfx_activity{pod="p",pod="q",namespace="team"} 1',
        r'gpu_gfx_activity{pod="p\x",namespace="team"} 1',
        'gpu_gfx_activity{pod="p",namespace="team"} 1e999',
        'gpu_gfx_activity{pod="p",namespace="team"} -NaN',
        'gpu_gfx_activity{pod="p",namespace="team"} 1 ',
        'gpu_gfx_activity{pod="p",namespace="team"} 1 12.5',
        'gpu_gfx_activity{pod="p",namespace="team"} 1 12 ',
        'gpu_gfx_activity{pod="p",namespace="team"} 1 12 13',
        'gpu_gfx_activity{pod="p",namespace="team"} 1 # {trace_id="x"} 0.5',
        'gpu_gfx_activity{__name__="a",pod="p",namespace="team"} 1',
        'gpu_gfx_activity{"__name__"="a",pod="p",namespace="team"} 1',
        'gpu_gfx_activity{""="a",pod="p",namespace="team"} 1',
        '{"",pod="p",namespace="team"} 1',
        'other_metric{a="b"} 5 # {trace_id="x"} 0.5',
        'other_metric{a="b"} 5 12.5',
        "other_metric 5 ",
        "# TYPE gpu_gfx_activity unknown",
        "# TYPE gpu_gfx_activity gauge ",
        "# TYPE other_metric info",
        "# TYPE other-metric gauge",
        "# TYPE 5 gauge",
        "# HELP gpu_gfx_activity a\\b",
        "# HELP other_metric a\\b",
        "gpu_gfx_activity{pod} 1",
        '{"a","b"} 1',
        '{pod="p"} 1',
        "\x00\x01\x02",
    ],
)
@pytest.mark.parametrize("end", ["\n", ""])
def test_text_that_is_not_an_exposition_is_refused_as_a_whole(text: str, end: str) -> None:
    good = line('pod="a",namespace="team"')
    with pytest.raises(MalformedExposition, match="accepted: comments"):
        parse_samples(good + text.encode() + end.encode(), [AMD])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# TYPE gpu_gfx_activity gauge\n# TYPE gpu_gfx_activity gauge\n", "a second TYPE"),
        ("# HELP gpu_gfx_activity a\n#HELP gpu_gfx_activity b\n", "a second HELP"),
        ("gpu_gfx_activity 1\n# TYPE gpu_gfx_activity counter\n", "TYPE after samples"),
        ('{"gpu_gfx_activity"} 1\n# TYPE "gpu_gfx_activity" gauge\n', "TYPE after samples"),
    ],
)
def test_a_family_is_declared_once_and_its_type_before_its_samples(text: str, why: str) -> None:
    with pytest.raises(MalformedExposition, match=f"^{why}"):
        parse_samples(text.encode(), [AMD])


@pytest.mark.parametrize(
    "text",
    [
        "# TYPE",
        "# HELP ",
        "# TYPE gpu_gfx_activity",
        "# HELP gpu_gfx_activity \t",
        "# TYPE other_metric",
        "# TYPES other_metric of things\\",
        "# UNIT gpu_gfx_activity percent",
        "#",
        '# HELP gpu_gfx_activity a \\"b\\" \\n c\\\\',
        "# TYPE other_metric histogram",
    ],
)
def test_comments_that_declare_nothing_of_a_sample_are_passed_over(text: str) -> None:
    body = f"{text}\n".encode() + line('pod="a",namespace="team"')
    assert parse_samples(body, [AMD]) == [amd("a", 5.0, gpu="")]


def test_a_label_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(MalformedExposition):
        parse_samples(b'gpu_gfx_activity{pod="\xff",namespace="team"} 1\n', [AMD])


def test_a_body_without_newlines_is_not_held_in_memory() -> None:
    parser = ExpositionParser([AMD])
    with pytest.raises(MalformedExposition, match="longer than 1 MiB"):
        for _ in range(100):
            parser.feed(b"x" * 65_536)


def test_an_empty_body_says_nothing() -> None:
    assert parse_samples(b"", [AMD]) == []


def test_text_may_be_cut_anywhere() -> None:
    text = b"# TYPE gpu_gfx_activity gauge\n" + b"".join(
        line(f'pod="p{n}",namespace="team"', str(n)) + b"other 1\n\n# EOF\n" for n in range(20)
    )
    for size in (1, 2, 7, 64):
        parser = ExpositionParser([AMD])
        for start in range(0, len(text), size):
            parser.feed(text[start : start + size])
        assert parser.finish() == parse_exposition(text, [AMD])


def nvidia_line(name: str, labels: str, value: str) -> bytes:
    return line(labels + ',pod="p",namespace="team"', value, name)


def test_the_engine_ratio_is_preferred_where_a_gpu_has_it() -> None:
    text = (
        nvidia_line("DCGM_FI_DEV_GPU_UTIL", 'gpu="0"', "100")
        + nvidia_line("DCGM_FI_DEV_GPU_UTIL", 'gpu="1"', "60")
        + nvidia_line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 'gpu="0"', "0.25")
    )
    assert [(s.gpu_id, s.utilization, s.metric) for s in parse_samples(text, [NVIDIA])] == [
        ("1", 60.0, "DCGM_FI_DEV_GPU_UTIL"),
        ("0", 25.0, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
    ]


def test_a_ratio_that_is_not_available_leaves_the_percent_in_force() -> None:
    text = nvidia_line("DCGM_FI_DEV_GPU_UTIL", 'gpu="0"', "60") + nvidia_line(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 'gpu="0"', "9223372036854775794"
    )
    exposition = parse_exposition(text, [NVIDIA])
    assert [sample.utilization for sample in exposition.samples] == [60.0]
    assert exposition.invalid == [InvalidSample("team", "p", "0", Defect.ABOVE_100)]


def test_mig_instances_of_one_gpu_stay_apart() -> None:
    text = b"".join(
        nvidia_line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", f'gpu="0",GPU_I_ID="{n}"', "0.5")
        for n in (1, 2)
    )
    assert [(s.gpu_id, s.partition) for s in parse_samples(text, [NVIDIA])] == [
        ("0", "1"),
        ("0", "2"),
    ]


def test_intels_ratio_becomes_percent_per_tile() -> None:
    text = line(
        'uuid="u",sub_dev="1",kube_pod="p",kube_namespace="team"', "0.5", "xpum_engine_ratio"
    )
    assert parse_samples(text, [AMD, NVIDIA, INTEL]) == [
        Sample("team", "p", "u", "1", 50.0, "intel", "xpum_engine_ratio", uuid="u")
    ]


def test_a_vendor_that_is_not_switched_on_is_not_read() -> None:
    text = nvidia_line("DCGM_FI_DEV_GPU_UTIL", 'gpu="0"', "60")
    assert parse_samples(text, [AMD]) == []
